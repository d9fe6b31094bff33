"""Table 3 of Vaswani et al. 2017 as a sweep: ``sweep.py:paper`` on WMT 2014 English-German, ``sweep.py:small`` on Multi30k.

    transformer-jax sweep --sweep=experiments/paper_table3/sweep.py:small --workdir=runs/table3 --workers=2 \\
        --config.data.directory=multi30k --rows="base,A heads/8,E learned positions"
"""

from rows import PAPER, SMALL, rows

from transformer_jax.sweeps.definition import Sweep

VARIANTS = ("paper", "small")

# A budget for two CPU cores: every row sees the same batches as often.
SMALL_BUDGET = {
    # One order of the data for all: runs that differ in their seed alone share what is compiled.
    "data.seed": 0,
    "data.max_source_tokens": 63,
    "data.max_target_tokens": 63,
    "tokenizer.vocabulary_size": 4000,
    "batching.tokens_per_update": 2048,
    "optimizer.schedule": "cosine",
    "optimizer.learning_rate": 1.5e-3,
    "optimizer.warmup_updates": 100,
    "training.num_updates": 400,
    "training.evaluate_every": 400,
    "training.checkpoint_every": 200,
    "training.keep_last": 1,
    "decoding.beam_width": 4,
    "decoding.length_penalty": 0.6,
}


def get_sweep(scale: str) -> Sweep:
    """All rows at a scale. The paper's big model makes three times as many updates as the others."""
    if scale == "small":
        return Sweep(
            config="configs/multi30k.py:tiny_hour",
            overrides=SMALL_BUDGET,
            rows=rows(SMALL),
            seeds=(0, 1),
            metric="validation/perplexity",
        )
    every = rows(PAPER)
    every["big"] |= {"training.num_updates": 300_000, "training.keep_last": 20}
    return Sweep(config="configs/transformer_base.py", rows=every, metric="validation/perplexity")
