"""What each way of saving memory or compile time costs: the step of the paper's base model,
compiled and timed in each.

    python experiments/benchmarks/memory.py --positions=2048 --steps=3
    python experiments/benchmarks/memory.py --variants="everything kept;logits at once" --positions=25000 --steps=0
    python experiments/benchmarks/memory.py --attention --positions=2048

Memory is the compiler's: temporaries (activations, gradients, workspace), and all with the state;
seconds are the machine's. Each variant is a process of its own. Writes memory_POSITIONS.md. With
``--attention`` the forward pass and gradient of causal attention alone, one row of that length:
memory_attention_POSITIONS.md.
"""

import argparse
import json
import sys
from pathlib import Path

from step_cost import GIB, base_settings, measured_apart, rows_for, step_cost, write_table

RESULTS = Path(__file__).resolve().parent / "results"
LENGTH = 64
VOCABULARY = 37_000
# Settings added to configs/transformer_base.py in float32, or the replacement of the chunked loss.
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
    parser.add_argument("--attention", action="store_true", help="attention alone, by kind of scores")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(arguments.measure, arguments.positions, arguments.steps)))
        return
    if arguments.attention:
        rows = attention_memory(arguments.positions)
        head = "| attention | temporaries MiB | relative to blockwise |\n|---|---:|---:|"
        lines = [f"| {row['attention']} | {row['temporaries'] / 2**20:.1f} | {row['relative']:.2f} |" for row in rows]
        table = "\n".join([head, *lines, ""])
        print(table)
        write_table(arguments.output, f"memory_attention_{arguments.positions}", table)
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
    write_table(arguments.output, f"memory_{arguments.positions}", table)


def measured(name: str, positions: int, steps: int) -> dict:
    """One variant: seconds to compile, memory, and seconds a step if it is run."""
    import jax.numpy as jnp

    from transformer_jax.models.interface import call
    from transformer_jax.tasks.translation.translation_objective import TranslationObjective
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


def attention_memory(positions: int) -> list[dict]:
    """Temporaries of attention with 8 heads of 64 and its gradient, forward and backward, compiled
    for the device here."""
    import jax
    import jax.numpy as jnp
    from jax.tree_util import Partial

    from transformer_jax.layers.blockwise_attention import BlockwiseAttention
    from transformer_jax.layers.masks import SentenceMask, Window
    from transformer_jax.layers.scaled_dot_product import AttentionOptions, EinsumAttention
    from transformer_jax.precision import FLOAT32

    def slopes(slopes_H, scores, at):
        return scores + slopes_H[None, :, None, None] * at.distance[:, None]

    def buckets(table_HN, scores, at):
        return scores + jnp.swapaxes(table_HN[:, jnp.clip(at.distance, -128, 0) + 128], 0, 1)

    def rotated(heads):
        angles = jnp.arange(positions)[:, None] * 10_000.0 ** (-jnp.arange(32) / 32)[None, :]
        cosine, sine = jnp.cos(angles)[None, None], jnp.sin(angles)[None, None]
        one, other = jnp.split(heads, 2, axis=-1)
        return jnp.concatenate([one * cosine - other * sine, one * sine + other * cosine], axis=-1)

    def temporaries(
        backend, score_mod=None, *, key_heads=8, mask_mod=None, change=lambda heads: heads, with_gradient=True
    ):
        def loss(q, k, v, score_mod, segments):
            mask = SentenceMask(segments, segments, is_causal=True, mask_mod=mask_mod)
            heads = backend(change(q), change(k), v, mask, AttentionOptions(None, FLOAT32, score_mod))
            return jnp.sum(heads**2)

        query, key = (jax.ShapeDtypeStruct((1, heads, positions, 64), jnp.float32) for heads in (8, key_heads))
        gradient = jax.grad(loss, argnums=(0, 1, 2, 3) if with_gradient else (0, 1, 2))
        segments = jax.ShapeDtypeStruct((1, positions), jnp.int32)
        compiled = jax.jit(gradient).lower(query, key, key, score_mod, segments).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    blockwise, slopes_H = BlockwiseAttention(), jax.ShapeDtypeStruct((8,), jnp.float32)
    found = {
        "blockwise": temporaries(blockwise),
        "rotary": temporaries(blockwise, change=rotated),
        "ALiBi": temporaries(blockwise, Partial(slopes, slopes_H), with_gradient=False),
        "learned slopes": temporaries(blockwise, Partial(slopes, slopes_H)),
        "learned table by distance": temporaries(
            blockwise, Partial(buckets, jax.ShapeDtypeStruct((8, 129), jnp.float32))
        ),
        "window of 256": temporaries(blockwise, mask_mod=Window(255, 0)),
        "2 key heads": temporaries(blockwise, key_heads=2),
        "einsum": temporaries(EinsumAttention()),
    }
    return [
        {"attention": name, "temporaries": size, "relative": size / found["blockwise"], "jax": jax.__version__}
        for name, size in found.items()
    ]


def line(row: dict) -> str:
    """A row of the table."""
    seconds = f"{row['seconds']:.2f}" if "seconds" in row else "not run"
    memory = f"{row['temporaries'] / GIB:.2f} | {row['total'] / GIB:.2f}"
    return f"| {row['variant']} | {row['compile_seconds']:.1f} | {memory} | {seconds} |"


if __name__ == "__main__":
    main()
