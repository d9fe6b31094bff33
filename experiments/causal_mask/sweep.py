"""What leaks without the causal mask? The recipe of quickstart.py, shortened, with it and without.

    transformer-jax sweep --sweep=experiments/causal_mask/sweep.py --workdir=runs/causal
"""

from transformer_jax.sweeps.definition import Sweep

BUDGET = {"training.num_updates": 600, "training.evaluate_every": 600, "training.checkpoint_every": 600}


def get_sweep() -> Sweep:
    """``model.attention`` alone differs."""
    rows = {"causal": {"model.attention": "multi_head"}, "acausal": {"model.attention": "acausal"}}
    return Sweep(config="configs/quickstart.py", overrides=BUDGET, rows=rows)
