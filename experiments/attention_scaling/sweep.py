"""Is 1 / sqrt(d_k) needed? The recipe of quickstart.py with and without it, heads of 32 and of 128,
three seeds, equal budget.

    transformer-jax sweep --sweep=experiments/attention_scaling/sweep.py --workdir=runs/scaling

The trials of a row differ only in their seed.
"""

from transformer_jax.tools.study.sweeps import Sweep

BUDGET = {
    "data.seed": 0,
    "training.num_updates": 600,
    "training.evaluate_every": 200,
    "training.checkpoint_every": 600,
    "training.validation_sentences": 128,
}


def get_sweep() -> Sweep:
    """d_k is d_model / num_heads: 4 heads of 32, or 1 of 128."""
    rows = {
        f"d_k={128 // heads} {attention}": {"model.num_heads": heads, "model.attention": kind}
        for heads in (4, 1)
        for attention, kind in (("scaled", "multi_head"), ("unscaled", "unscaled"))
    }
    return Sweep(config="configs/quickstart.py", overrides=BUDGET, rows=rows, seeds=(0, 1, 2))
