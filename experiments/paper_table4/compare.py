"""F1 of several parsers on the same sentences, in all and by length, and how far each is from the
first.

    python experiments/paper_table4/compare.py treebank/test.mrg.gz PCFG=pcfg.mrg GRU=runs/gru/evaluation-test-2000.txt
    python experiments/paper_table4/compare.py ... --picture=f1_by_length.png

The files have bracketed trees in the order of the gold trees, which come first. Differences are
tested by sacreBLEU's paired tests. (``transformer-jax compare`` tests two runs, and shows the
sentences that differ most.)
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from transformer_jax.evaluation.significance import Estimate
from transformer_jax.tools.parsing.bracket_scores import LENGTHS, compare_parsers, counts_of, f1_by_length, scores_of
from transformer_jax.tools.parsing.trees import Tree, normalized, read_trees


def trees_of(file: str) -> list[Tree]:
    """The normalized trees of a file."""
    found = (normalized(each.tree, Counter()) for each in read_trees(Path(file)))
    return [tree for tree in found if tree is not None]


def text(estimate: Estimate) -> str:
    """The value with its 95 % interval."""
    return f"{estimate.value:.2f} ({estimate.lower:.2f} to {estimate.upper:.2f})"


def draw(counts: dict[str, np.ndarray], path: str) -> None:
    """Draws a line for each parser, a point for each group of ``f1_by_length`` at its mean
    length."""
    from transformer_jax.tools.pictures.panels import LinePanel, draw_panels

    group = np.digitize(next(iter(counts.values()))[:, -1], LENGTHS, right=True)
    lines = {}
    for name, each in counts.items():
        sums = [each[group == number].sum(axis=0) for number in np.unique(group)]
        lines[name] = [total[-1] / total[-2] for total in sums], [scores_of(total).f1 for total in sums]
    panel = LinePanel("F1 by number of words", lines, "words (mean of the group)", "F1")
    draw_panels([panel], path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("gold")
    parser.add_argument("parsers", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--picture", default="", help="file for a picture of F1 by length")
    arguments = parser.parse_args()
    gold, files = trees_of(arguments.gold), dict(each.split("=", 1) for each in arguments.parsers)
    trees = {name: trees_of(file) for name, file in files.items()}
    counts = {name: counts_of(gold, each) for name, each in trees.items()}
    by_length = {name: f1_by_length(each) for name, each in counts.items()}
    first, *others = ([str(tree) for tree in each] for each in trees.values())
    for name in trees:
        lengths = ", ".join(f"{length}: {f1:.1f}" for length, (_, f1) in by_length[name].items())
        print(f"{name}: F1 {scores_of(counts[name].sum(axis=0)).f1:.2f}; {lengths}")
    for name, other in zip([*trees][1:], others, strict=True):
        (found,) = compare_parsers(first, other, [str(tree) for tree in gold])
        print(f"{name} - {next(iter(trees))}: {text(found.difference)}, p = {found.p_value:.3f}; {found.signature}")
    if arguments.picture:
        draw(counts, arguments.picture)


if __name__ == "__main__":
    main()
