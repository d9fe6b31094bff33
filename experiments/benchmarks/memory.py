"""What each way of saving memory or compile time costs: the step of the paper's base model, compiled and timed in each.

    python experiments/benchmarks/memory.py --positions=2048 --steps=3
    python experiments/benchmarks/memory.py --variants="everything kept;logits at once" --positions=25000 --steps=0

Memory is that of the compiled program's temporaries (activations, gradients, workspace), exact; seconds are the machine's.
Each variant is a process of its own. Writes memory_POSITIONS.json and .md.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
LENGTH = 64
VOCABULARY = 37_000
GIB = 2**30
# Settings beside those of configs/transformer_base.py in float32, or what replaces the chunked loss.
VARIANTS: dict[str, dict[str, object]] = {
    "everything kept": {},
    "logits at once": {},
    "bfloat16": {"model.compute_dtype": "bfloat16"},
    "keep_products": {"model.rematerialise": "keep_products"},
    "keep_projections": {"model.rematerialise": "keep_projections"},
    "full": {"model.rematerialise": "full"},
    "scan": {"model.scan_layers": True},
    "scan, keep_projections": {"model.scan_layers": True, "model.rematerialise": "keep_projections"},
    "scan, full": {"model.scan_layers": True, "model.rematerialise": "full"},
    "4 parts": {"batching.accumulation_steps": 4},
    "4 parts, scan, full": {
        "batching.accumulation_steps": 4,
        "model.scan_layers": True,
        "model.rematerialise": "full",
    },
}
HEAD = "| variant | compiled in s | temporaries GiB | s a step |\n|---|---:|---:|---:|"


def main() -> None:
    """Starts a process for each variant and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=2048, help="target positions of a step, in rows of 64")
    parser.add_argument("--steps", type=int, default=3, help="timed steps, after one more; 0: only compile")
    parser.add_argument("--variants", default=";".join(VARIANTS), help="separated by semicolons")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(arguments.measure, arguments.positions, arguments.steps)))
        return
    names = [name.strip() for name in arguments.variants.split(";")]
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        sys.exit(f"--variants: {'; '.join(unknown)} not among {'; '.join(VARIANTS)}")
    rows = []
    for name in names:
        sizes = [f"--positions={arguments.positions}", f"--steps={arguments.steps}"]
        command = [sys.executable, __file__, *sizes, f"--measure={name}"]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
        print(line(rows[-1]), flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = f"memory_{arguments.positions}"
    (arguments.output / f"{stem}.json").write_text(json.dumps(rows, indent=1) + "\n")
    (arguments.output / f"{stem}.md").write_text("\n".join([HEAD, *map(line, rows), ""]))


def measured(name: str, positions: int, steps: int) -> dict:
    """One variant: seconds to compile, memory, and seconds a step if it is run."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from transformer_jax.config import numbers_of, resolve
    from transformer_jax.models.interface import call
    from transformer_jax.sequence_types import Batch, Tokens
    from transformer_jax.tasks.objective import TranslationObjective
    from transformer_jax.training.losses import label_smoothed_cross_entropy
    from transformer_jax.training.sharding import make_mesh, put_batch, put_numbers
    from transformer_jax.training.update import Update

    recipe = Path(__file__).resolve().parents[2] / "configs" / "transformer_base.py"
    settings = {"model.compute_dtype": "float32"} | VARIANTS[name]
    config = resolve(str(recipe), [(key, str(value)) for key, value in settings.items()])
    mesh = make_mesh(config.mesh)
    objective = TranslationObjective(config, VOCABULARY, VOCABULARY, mesh)

    def loss_of_all_logits(params, batch, key, numbers):
        model, rngs = objective.training_model(numbers.rates), {"dropout": key}
        memory = call(model, params, "encode", batch.source, train=True, rngs=rngs)
        logits = call(model, params, "decode", batch.target, memory, train=True, rngs=rngs)
        weights = jnp.asarray(batch.target.segments != 0, jnp.float32)
        return label_smoothed_cross_entropy(logits, batch.target.ids, weights, numbers.label_smoothing)

    loss = loss_of_all_logits if name == "logits at once" else objective.loss
    update = Update(config, loss, objective.init_params, mesh)
    rows = round(positions / LENGTH / 8) * 8
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (2, rows, LENGTH)).astype(np.int32)
    batch = put_batch(Batch(*map(Tokens.from_ids, ids)), mesh)
    started = time.perf_counter()
    compiled = update.lower(batch).compile()
    result = {"variant": name, "positions": rows * LENGTH, "compile_seconds": time.perf_counter() - started}
    result |= {"temporaries": compiled.memory_analysis().temp_size_in_bytes, "jax": jax.__version__}
    if not steps:
        return result
    state, numbers, seconds = update.initial_state(config.seed), put_numbers(numbers_of(config), mesh), []
    for _ in range(1 + steps):
        started = time.perf_counter()
        state, metrics = compiled(state, batch, numbers)
        jax.block_until_ready(metrics)
        seconds.append(time.perf_counter() - started)
    return result | {"seconds": sorted(seconds[1:])[steps // 2]}


def line(row: dict) -> str:
    """A row of the table."""
    seconds = f"{row['seconds']:.2f}" if "seconds" in row else "not run"
    return f"| {row['variant']} | {row['compile_seconds']:.1f} | {row['temporaries'] / GIB:.2f} | {seconds} |"


if __name__ == "__main__":
    main()
