"""Table 3 of Vaswani et al. 2017 as a sweep: ``sweep.py:paper`` on WMT 2014 English-German,
``sweep.py:small`` on Multi30k.

    transformer-jax sweep --sweep=experiments/paper_table3/sweep.py:small --workdir=runs/table3 --workers=2 \\
        --config.data.directory=multi30k --rows="base,A heads/8,E learned positions"
"""

from rows import PAPER, SMALL, rows
from small_budget import SMALL_BUDGET

from transformer_jax.tools.study.sweeps import Sweep

VARIANTS = ("paper", "small")


def get_sweep(scale: str) -> Sweep:
    """All rows at a scale. The paper's big model makes three times as many updates as the
    others."""
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
