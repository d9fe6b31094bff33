"""How far is the training step from the roofline of devices that are not here? Counts of compiled
programs, without noise.

    python experiments/roofline/roofline.py

Compiles the paper's base and big for one H100 and one A100, and base for sixteen TPU v5e chips
(25,000 tokens in all, and on each), with buckets of 256 positions and with packed rows of 512; each
in a process of its own, some minutes. Prints traffic, products, the time that they bound, model
FLOPs utilization at that bound, and traffic by kind beside the least by hand
(``least_traffic.py``). Needs the extras preflight and preflight-gpu. ``--only`` chooses cases by
words of their names, such as ``base h100:1``.
"""

import argparse
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from least_traffic import Dimensions, least_traffic

if TYPE_CHECKING:
    from transformer_jax.config import ExperimentConfig

ROOT = Path(__file__).resolve().parents[2]
GIB, TERA = 2**30, 1e12
POSITIONS = ("batching.count", "positions")
BATCHES = {
    "256": (POSITIONS, ("batching.kind", "buckets")),
    "512 packed": (POSITIONS, ("batching.kind", "packed"), ("batching.packed_length", "512")),
}
PLACES = (("base", "h100:1"), ("big", "h100:1"), ("base", "a100:1"), ("big", "a100:1"), ("base", "v5e:4x4"))
TOKENS = 25_000
"""Of the recipe, on one device or shared by sixteen."""
CASES = {f"{recipe} {place} {batch}": (recipe, place, batch, TOKENS) for recipe, place in PLACES for batch in BATCHES}
CASES |= {f"base v5e:4x4 {batch}, {TOKENS:,} a chip": ("base", "v5e:4x4", batch, 16 * TOKENS) for batch in BATCHES}
PACKAGES = "jax", "jaxlib", "jax-cuda13-plugin", "nvidia-cuda-nvcc", "nvidia-cudnn-cu13", "libtpu"
HEAD = (
    "| | traffic GiB | least GiB | products TFLOP | memory ms | compute ms | MFU bound |\n"
    "|---|---:|---:|---:|---:|---:|---:|"
)


def main() -> None:
    """Starts a process for each case and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words that the names of cases have")
    parser.add_argument("--measure", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(*CASES[arguments.measure])))
        return
    found = {}
    for name in CASES:
        if all(word in name.split() for word in arguments.only.split()):
            command = [sys.executable, __file__, f"--measure={name}"]
            found[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            print(line(name, found[name]), file=sys.stderr, flush=True)
    print(table(found))


def measured(recipe: str, place: str, batch: str, tokens: int) -> dict:
    """The counts of one step, on one device."""
    from transformer_jax.config import resolve
    from transformer_jax.tools.preflight.chips import open_topology
    from transformer_jax.tools.preflight.compiled_program import compile_program, model_flops_utilization, roofline

    topology = open_topology(place)
    rows = max(len(topology.devices), 8)
    settings = [("batching.row_multiple", str(rows)), ("batching.tokens_per_update", str(tokens)), *BATCHES[batch]]
    config = resolve(f"{ROOT}/configs/transformer_base.py:{recipe}", settings)
    program = compile_program(config, topology)
    assert topology.chip
    limits = roofline(program, topology.chip)
    return {
        "traffic": program.traffic,
        "kinds": program.traffic_kinds,
        "least": least_traffic(
            dimensions(config, program.rows * program.width // len(topology.devices), program.parameters)
        ),
        "products": program.flops,
        "compute_seconds": limits.compute,
        "memory_seconds": limits.memory,
        "mfu_bound": model_flops_utilization(program, topology.chip),
    }


def dimensions(config: "ExperimentConfig", positions: int, parameters: int) -> Dimensions:
    """Those of the recipe."""
    model = config.model
    layers = model.num_encoder_layers, model.num_decoder_layers
    return Dimensions(positions, *layers, model.d_model, model.d_ff, config.tokenizer.vocabulary_size, parameters)


def table(found: dict[str, dict]) -> str:
    """All cases, then the traffic of each by kind, then the versions."""
    lines = [HEAD, *(line(name, each) for name, each in found.items())]
    kinds = list(dict.fromkeys(kind for each in found.values() for kind in (*each["least"], *each["kinds"])))
    lines += [
        "",
        f"| GiB: least, now | {' | '.join(kinds)} |",
        "|---|" + "---:|" * len(kinds),
    ]
    for name, each in found.items():
        cells = [", ".join(f"{each[of].get(kind, 0) / GIB:.2f}" for of in ("least", "kinds")) for kind in kinds]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    versions = ", ".join(f"{name} {version}" for name in PACKAGES if (version := installed(name)))
    return "\n".join([*lines, "", f"Commit {git_commit()}; {versions}."])


def line(name: str, row: dict) -> str:
    """A row of the table."""
    return (
        f"| {name} | {row['traffic'] / GIB:.1f} | {sum(row['least'].values()) / GIB:.1f} | {row['products'] / TERA:.2f} "
        f"| {row['memory_seconds'] * 1e3:.1f} | {row['compute_seconds'] * 1e3:.1f} | {row['mfu_bound']:.0%} |"
    )


def installed(package: str) -> str:
    """Its version, empty if it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def git_commit() -> str:
    """The commit that is checked out."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
