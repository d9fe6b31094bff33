"""Training speed against PyTorch: the same batches, the same model, in turn on the same cores.

    python experiments/benchmarks/training_speed.py --data=multi30k

    python experiments/benchmarks/training_speed.py --data=generated --device=gpu --model=big --tokens_per_update=25000

``--data`` is a folder with train.en and train.de, plain or gzipped, or ``generated``. Writes
training_speed_MODEL.md to ``--output``. See README.md beside this file.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from matmul_ceiling import JAX_PLATFORMS, measure_ceilings
from workload import MODELS, benchmark_config, record

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# glibc returns large blocks to the system at every free, and every allocation then pays for fresh
# zeroed pages.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**26)}
# It keeps the largest only in its first arena. JAX allocates what a step needs in whatever thread
# starts it, so for JAX there is to be no other arena; PyTorch's threads would queue for it.
KEEP_IN_ONE = KEEP_MEMORY | {"MALLOC_ARENA_MAX": "1"}
TUNED = ", allocator tuned"

SETTINGS = "model", "data", "batching", "tokens_per_update", "device", "rounds", "steps", "batches", "threads"


class Contestant(NamedTuple):
    """A script beside this file: its arguments, additions to its environment, and its ceiling."""

    command: tuple[str, ...]
    environment: dict[str, str]
    ceiling: str


BFLOAT16 = ("jax_side.py", "--compute_dtype=bfloat16")
AUTOCAST = ("torch_side.py", "--autocast")
CONTESTANTS = {
    "ours float32": Contestant(("jax_side.py",), {}, "jax float32"),
    "torch eager": Contestant(("torch_side.py",), {}, "torch float32"),
    f"ours float32{TUNED}": Contestant(("jax_side.py",), KEEP_IN_ONE, "jax float32"),
    f"torch eager{TUNED}": Contestant(("torch_side.py",), KEEP_MEMORY, "torch float32"),
    f"torch compiled{TUNED}": Contestant(("torch_side.py", "--compile"), KEEP_MEMORY, "torch float32"),
    f"ours bfloat16{TUNED}": Contestant(BFLOAT16, KEEP_IN_ONE, "jax bfloat16"),
    f"torch autocast bfloat16{TUNED}": Contestant(AUTOCAST, KEEP_MEMORY, "torch bfloat16"),
}
GPU_CONTESTANTS = {
    "ours bfloat16": Contestant(BFLOAT16, {}, "jax bfloat16"),
    "torch autocast bfloat16": Contestant(AUTOCAST, {}, "torch bfloat16"),
    "torch compiled, autocast bfloat16": Contestant((*AUTOCAST, "--compile"), {}, "torch bfloat16"),
}
"""Where 16 bits are the rule."""


def main() -> None:
    """Measures, writes the results and prints the table."""
    arguments = parse_arguments()
    contestants = GPU_CONTESTANTS if arguments.device == "gpu" else CONTESTANTS
    names = [name for name in contestants if "compiled" not in name or arguments.torch_compile]
    if arguments.contestants:
        names = [name.strip() for name in arguments.contestants.split(";")]
    if unknown := [name for name in names if name not in contestants]:
        sys.exit(f"--contestants: {'; '.join(unknown)} not among {'; '.join(contestants)}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: {load:.1f} other processes are running; times will be noise", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        work = benchmark_config(arguments.data, arguments.model, arguments.batching, arguments.tokens_per_update)
        shapes = record(work, Path(folder), arguments.batches)
        rounds = measure_rounds({name: contestants[name] for name in names}, Path(folder), arguments)
    kinds = sorted({contestants[name].ceiling for name in names})
    ceilings = measure_ceilings(arguments.threads, kinds, arguments.device)
    result = {
        "machine": describe_machine(load),
        "settings": {name: getattr(arguments, name) for name in SETTINGS},
        "shapes": shapes,
        "ceilings_gflops": ceilings,
        "contestants": {name: summarize(rounds[name], ceilings[contestants[name].ceiling]["best"]) for name in names},
        "rounds": rounds,
    }
    result["verdict"] = verdict(result["contestants"])
    stem = f"training_speed_{arguments.model}"
    if arguments.device == "gpu":
        stem += f"_gpu_{arguments.batching}"
    table = markdown(result)
    (arguments.output / f"{stem}.md").write_text(table)
    print(table)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with train.en and train.de, or: generated")
    parser.add_argument("--model", choices=MODELS, default="transformer")
    parser.add_argument("--batching", choices=("buckets", "packed"), default="buckets")
    parser.add_argument("--tokens_per_update", type=int, default=4096, help="positions of either side")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="gpu: one, in bfloat16")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--rounds", type=int, default=3, help="how many times every contestant has its turn")
    parser.add_argument("--steps", type=int, default=30, help="timed updates of a contestant in a round")
    parser.add_argument("--batches", type=int, default=30, help="recorded batches; further steps start over")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch_compile", action="store_true", help="also torch.compile, which needs a C++ compiler")
    parser.add_argument("--contestants", help=f"only these, separated by semicolons: {'; '.join(CONTESTANTS)}")
    return parser.parse_args()


def measure_rounds(
    contestants: dict[str, Contestant], folder: Path, arguments: argparse.Namespace
) -> dict[str, list[dict]]:
    """What every contestant measured in every round; each in a process of its own, one after
    another."""
    rounds: dict[str, list[dict]] = {name: [] for name in contestants}
    for number in range(arguments.rounds):
        for name, contestant in contestants.items():
            measured = run_contestant(contestant, folder, arguments)
            rounds[name].append(measured)
            rate = tokens_per_second(measured["steps"])
            print(f"round {number + 1} of {arguments.rounds}, {name}: {rate:,.0f} target tokens/s", file=sys.stderr)
    return rounds


def run_contestant(contestant: Contestant, folder: Path, arguments: argparse.Namespace) -> dict:
    """One contestant's turn."""
    output = folder / "measured.json"
    threads = str(arguments.threads)
    environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads} | contestant.environment
    environment |= {"JAX_PLATFORMS": JAX_PLATFORMS[arguments.device]}
    # Every turn compiles anew: nothing may come from an earlier one.
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    script, *extra = contestant.command
    command = [sys.executable, str(HERE / script), *extra, f"--device={arguments.device}", f"--recorded={folder}"]
    command += [f"--output={output}", f"--steps={arguments.steps}", f"--threads={threads}", f"--started={time.time()}"]
    subprocess.run(command, check=True, env=environment)
    return json.loads(output.read_text())


def tokens_per_second(steps: list[dict]) -> float:
    """Non-padding target tokens per second, every step taking the median time of the steps of its
    shape.

    The median is taken inside each shape because steps of different shapes differ in time by
    design; adding them up in the proportion of the run keeps rare long batches in the account.
    """
    return sum(step["target_tokens"] for step in steps) / sum(typical_seconds(steps))


def typical_seconds(steps: list[dict]) -> list[float]:
    """For each step the median time of the steps of its shape."""
    by_shape: dict[tuple, list[float]] = {}
    for step in steps:
        by_shape.setdefault(tuple(step["shape"]), []).append(step["seconds"])
    medians = {shape: statistics.median(seconds) for shape, seconds in by_shape.items()}
    return [medians[tuple(step["shape"])] for step in steps]


def summarize(rounds: list[dict], ceiling: float) -> dict:
    """Medians over the rounds of one contestant; the rates are medians within a round (see
    ``tokens_per_second``)."""
    steps = [step for measured in rounds for step in measured["steps"]]
    seconds = sum(typical_seconds(steps))
    useful = sum(step["useful_flops"] for step in steps) / seconds / 1e9
    padded = sum(step["padded_flops"] for step in steps) / seconds / 1e9
    rates = [tokens_per_second(measured["steps"]) for measured in rounds]
    return {
        "target_tokens_per_second": statistics.median(rates),
        "target_tokens_per_second_of_rounds": rates,
        "seconds_per_step": seconds / len(steps),
        "useful_gflops": useful,
        "padded_gflops": padded,
        "fraction_of_ceiling": padded / ceiling,
        "useful_fraction_of_ceiling": useful / ceiling,
        "first_step_seconds": statistics.median(measured["first_step_seconds"] for measured in rounds),
        "seconds_from_command_to_first_step": statistics.median(
            measured["seconds_from_command_to_first_step"] for measured in rounds
        ),
        "last_loss": statistics.median(measured["steps"][-1]["loss"] for measured in rounds),
    }


def verdict(contestants: dict[str, dict]) -> dict[str, dict]:
    """Our speed over the speed of each reference of the same precision and allocator: of the
    medians, and in every round."""
    ratios = {}
    for reference in contestants:
        ours = "ours bfloat16" if "bfloat16" in reference else "ours float32"
        ours += TUNED if reference.endswith(TUNED) else ""
        if not reference.startswith("torch") or ours not in contestants:
            continue
        mine, theirs = contestants[ours], contestants[reference]
        pairs = zip(
            mine["target_tokens_per_second_of_rounds"], theirs["target_tokens_per_second_of_rounds"], strict=True
        )
        ratios[f"{ours} / {reference}"] = {
            "ratio_of_medians": mine["target_tokens_per_second"] / theirs["target_tokens_per_second"],
            "rounds": [our_rate / their_rate for our_rate, their_rate in pairs],
        }
    return ratios


def describe_machine(load: float) -> dict:
    """What the numbers belong to."""
    model = platform.processor()
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "load_before": load,
        "python": platform.python_version(),
        "packages": {
            name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "torch", "numpy") if find_spec(name)
        },
        "git_commit": commit.stdout.strip(),
        "devices": devices(),
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def devices() -> str:
    """The graphics cards that there are, by NVIDIA's own tool; empty where that is not
    installed."""
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def markdown(result: dict) -> str:
    """The table for a reader."""
    machine, settings = result["machine"], result["settings"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    hardware = machine["devices"] if settings["device"] == "gpu" else machine["processor"]
    lines = [
        f"{hardware}, {settings['threads']} threads of {machine['cores']} cores, load before "
        f"{machine['load_before']:.1f}; {packages}; commit {machine['git_commit']}; {machine['date']}. "
        f"{settings['rounds']} rounds of {settings['steps']} steps of about {settings['tokens_per_update']:,} positions, "
        f"{settings['batching']}.",
        "",
        "| | target tokens/s | in rounds | s/step | GFLOP/s | of ceiling | useful | first step s | from command s | loss |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in result["contestants"].items():
        rates = row["target_tokens_per_second_of_rounds"]
        lines.append(
            f"| {name} | {row['target_tokens_per_second']:,.0f} | {min(rates):,.0f} to {max(rates):,.0f} "
            f"| {row['seconds_per_step']:.3f} | {row['padded_gflops']:.0f} | {row['fraction_of_ceiling']:.0%} "
            f"| {row['useful_fraction_of_ceiling']:.0%} | {row['first_step_seconds']:.1f} "
            f"| {row['seconds_from_command_to_first_step']:.1f} | {row['last_loss']:.3f} |"
        )
    lines += ["", "| ratio of target tokens/s | of medians | in rounds |", "|---|---:|---:|"]
    for name, ratio in result["verdict"].items():
        rounds = ", ".join(f"{value:.2f}" for value in ratio["rounds"])
        lines.append(f"| {name} | {ratio['ratio_of_medians']:.2f} | {rounds} |")
    ceilings = ", ".join(f"{kind} {measured['best']:.0f}" for kind, measured in result["ceilings_gflops"].items())
    return "\n".join([*lines, "", f"Matmul ceilings, GFLOP/s (best shape, median of repeats): {ceilings}.", ""])


if __name__ == "__main__":
    main()
