"""What each way of saving memory or compile time costs: the step of the paper's base model, compiled and timed in each.

    python experiments/benchmarks/memory.py --positions=2048 --steps=3
    python experiments/benchmarks/memory.py --variants="everything kept;logits at once" --positions=25000 --steps=0

Memory is the compiler's: temporaries (activations, gradients, workspace), and all with the state; seconds are the machine's.
Each variant is a process of its own. Writes memory_POSITIONS.json and .md.
"""

import argparse
import json
import sys
from pathlib import Path

from step_cost import GIB, base_settings, measured_apart, rows_for, step_cost, write_rows

RESULTS = Path(__file__).resolve().parent / "results"
LENGTH = 64
VOCABULARY = 37_000
# Settings beside those of configs/transformer_base.py in float32, or what replaces the chunked loss.
VARIANTS: dict[str, dict[str, object]] = {
    "everything kept": {},
    "logits at once": {},
    "state not donated": {},
    "bfloat16": {"model__compute_dtype": "bfloat16"},
    "keep_products": {"model__rematerialize": "keep_products"},
    "keep_projections": {"model__rematerialize": "keep_projections"},
    "full": {"model__rematerialize": "full"},
    "scan": {"model__scan_layers": True},
    "scan, keep_projections": {"model__scan_layers": True, "model__rematerialize": "keep_projections"},
    "scan, full": {"model__scan_layers": True, "model__rematerialize": "full"},
    "4 parts": {"batching__accumulation_steps": 4},
    "4 parts, scan, full": {
        "batching__accumulation_steps": 4,
        "model__scan_layers": True,
        "model__rematerialize": "full",
    },
}
HEAD = "| variant | compiled in s | temporaries GiB | with state GiB | s a step |\n|---|---:|---:|---:|---:|"


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
        rows.append(measured_apart(__file__, *sizes, f"--measure={name}"))
        print(line(rows[-1]), flush=True)
    table = "\n".join([HEAD, *map(line, rows), ""])
    write_rows(rows, arguments.output, f"memory_{arguments.positions}", table)


def measured(name: str, positions: int, steps: int) -> dict:
    """One variant: seconds to compile, memory, and seconds a step if it is run."""
    import jax.numpy as jnp

    from transformer_jax.models.interface import call
    from transformer_jax.tasks.translation.objective import TranslationObjective
    from transformer_jax.training.losses import label_smoothed_cross_entropy
    from transformer_jax.training.sharding import make_mesh

    config = base_settings(tokenizer__vocabulary_size=VOCABULARY, **VARIANTS[name])
    objective = TranslationObjective(config, VOCABULARY, VOCABULARY, make_mesh(config.mesh))

    def loss_of_all_logits(params, batch, key, hyperparameters):
        model, rngs = objective.training_model(hyperparameters), {"dropout": key}
        memory = call(model, params, "encode", batch.source, train=True, rngs=rngs)
        logits = call(model, params, "decode", batch.target, memory, train=True, rngs=rngs)
        weights = jnp.asarray(batch.target.segments != 0, jnp.float32)
        return label_smoothed_cross_entropy(logits, batch.target.ids, weights, hyperparameters.label_smoothing)

    loss = loss_of_all_logits if name == "logits at once" else None
    is_donated = name != "state not donated"
    return {"variant": name} | step_cost(
        config, rows_for(positions, LENGTH, 8), LENGTH, steps, loss, is_donated=is_donated
    )


def line(row: dict) -> str:
    """A row of the table."""
    seconds = f"{row['seconds']:.2f}" if "seconds" in row else "not run"
    memory = f"{row['temporaries'] / GIB:.2f} | {row['total'] / GIB:.2f}"
    return f"| {row['variant']} | {row['compile_seconds']:.1f} | {memory} | {seconds} |"


if __name__ == "__main__":
    main()
