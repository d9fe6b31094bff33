"""Is the training curve with bfloat16 products as good as in float32? One recipe, three seeds, both
precisions.

    transformer-jax sweep --sweep=experiments/benchmarks/precision_sweep.py --workdir=runs/precision --workers=2 \\
        --config.data.directory=multi30k
    transformer-jax report runs/precision/trials/* --metrics=validation/loss --output=runs/precision
"""

from transformer_jax.tools.study.sweeps import Sweep


def get_sweep() -> Sweep:
    """Half of the updates of ``tiny_minutes``; seeds draw parameters and dropout, all see the same
    batches."""
    return Sweep(
        config="configs/multi30k.py:tiny_minutes",
        rows={"bfloat16": {"model.compute_dtype": "bfloat16"}, "float32": {"model.compute_dtype": "float32"}},
        seeds=(1, 2, 3),
        overrides={
            "data.seed": 0,
            "training.num_updates": 500,
            "optimizer.warmup_updates": 155,
            "training.evaluate_every": 50,
            "training.validation_sentences": 32,
        },
        metric="validation/loss",
    )
