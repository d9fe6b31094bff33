"""Table 2 of Vaswani et al. 2017 as a sweep: ``sweep.py:paper`` on WMT 2014, ``sweep.py:small`` on
Multi30k.

    transformer-jax sweep --sweep=experiments/paper_table2/sweep.py:small --workdir=runs/table2 --workers=2 \\
        --config.data.directory=multi30k --rows="base En-De,big En-De"
"""

import sys
from pathlib import Path

# The sizes are rows of table 3.
sys.path.append(str(Path(__file__).resolve().parents[1] / "paper_table3"))

from rows import PAPER, SMALL, Value, dropout, rows
from small_budget import SMALL_BUDGET

from transformer_jax.tools.study.sweeps import Sweep

VARIANTS = ("paper", "small")

# Section 5.1: a vocabulary of 32,000 word pieces instead of 37,000 from BPE.
WMT_FRENCH = {"data.name": "wmt14_translate/fr-en", "data.target_language": "fr", "tokenizer.vocabulary_size": 32_000}
# The last five checkpoints are averaged, as many as the paper's base model has.
SMALL_AVERAGE = 5


def get_sweep(scale: str) -> Sweep:
    """Both models in both languages. At the paper's scale big makes three times as many updates as
    base."""
    if scale == "small":
        return Sweep(
            config="configs/multi30k.py:tiny_hour",
            overrides=SMALL_BUDGET | {"training.checkpoint_every": 20, "training.keep_last": SMALL_AVERAGE},
            rows=in_both_languages(rows(SMALL), {"data.target_language": "fr"}),
            seeds=(0, 1),
            metric="validation/bleu",
        )
    every = rows(PAPER)
    every["big"] |= {"training.num_updates": 300_000, "training.keep_last": 20}
    both = in_both_languages(every, WMT_FRENCH)
    # Section 6.1: here the big model was trained with less dropout.
    both["big En-Fr"] |= dropout(0.1)
    return Sweep(config="configs/transformer_base.py", rows=both, metric="validation/bleu")


def in_both_languages(every: dict[str, dict[str, Value]], french: dict[str, Value]) -> dict[str, dict[str, Value]]:
    """``base`` and ``big`` of the rows of table 3, English to German as the recipe has it and to
    French."""
    return {
        f"{size} {pair}": every[size] | changes
        for pair, changes in (("En-De", {}), ("En-Fr", french))
        for size in ("base", "big")
    }
