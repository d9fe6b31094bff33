"""How far do positions reach that were never trained? Sinusoidal, learned, none; trained on
sentences of at most 10 words.

    transformer-jax sweep --sweep=experiments/beyond_trained_positions/sweep.py --workdir=runs/positions

The loss against the length of a sentence: `lengths.py`.
"""

from transformer_jax.tools.study.sweeps import Sweep

BUDGET = {
    "data.max_source_tokens": 10,
    "data.max_target_tokens": 10,
    "model.max_positions": 64,
    "training.num_updates": 600,
    "training.evaluate_every": 600,
    "training.checkpoint_every": 600,
}


def get_sweep() -> Sweep:
    """Validation and test keep their sentences of up to 20 tokens."""
    rows = {kind: {"model.positions": kind} for kind in ("sinusoidal", "learned", "none")}
    return Sweep(config="configs/quickstart.py", overrides=BUDGET, rows=rows)
