"""Whether one parser is better than another on the same sentences, by paired bootstrap resampling of F1.

    python experiments/paper_table4/compare.py treebank/test.mrg.gz pcfg.mrg runs/wsj_sample/evaluation-test-2000.txt

The files have bracketed trees in the same order: gold, first parser, second parser. (Two runs: transformer-jax compare.)
"""

import sys
from collections import Counter
from pathlib import Path

from transformer_jax.evaluation.significance import Estimate
from transformer_jax.tools.parsing.scores import compare_parsers
from transformer_jax.tools.parsing.trees import normalized, read_trees


def trees_of(file: str) -> list[str]:
    """The normalized trees of a file."""
    found = (normalized(each.tree, Counter()) for each in read_trees(Path(file)))
    return [str(tree) for tree in found if tree is not None]


def text(estimate: Estimate) -> str:
    """The value with its 95 % interval."""
    return f"{estimate.value:.2f} ({estimate.lower:.2f} to {estimate.upper:.2f})"


if __name__ == "__main__":
    gold, first, second = map(trees_of, sys.argv[1:4])
    (found,) = compare_parsers(first, second, gold)
    print(f"{found.metric} {text(found.first)} and {text(found.second)}, difference {text(found.difference)}")
    print(f"p = {found.p_value:.3f}; {found.signature}")
