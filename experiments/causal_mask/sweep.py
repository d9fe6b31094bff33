"""What leaks without the causal mask? The recipe of quickstart.py, shortened, with it and without.

    transformer-jax sweep --sweep=experiments/causal_mask/sweep.py --workdir=runs/causal

Each run then has a teacher-forced perplexity and a BLEU of what it translates by itself.
"""

from transformer_jax.tools.study.sweeps import Sweep

# That of experiments/attention_scaling, whose row "d_k=32 scaled" is "causal" here.
BUDGET = {
    "data.seed": 0,
    "training.num_updates": 600,
    "training.evaluate_every": 200,
    "training.checkpoint_every": 600,
    "training.validation_sentences": 128,
}


def get_sweep() -> Sweep:
    """``model.attention`` alone differs."""
    rows = {"causal": {"model.attention": "multi_head"}, "acausal": {"model.attention": "acausal"}}
    return Sweep(config="configs/quickstart.py", overrides=BUDGET, rows=rows)
