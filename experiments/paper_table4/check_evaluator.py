"""Compares the scores of trees, sentence by sentence, with EVALB's and PYEVALB's.

    python experiments/paper_table4/check_evaluator.py treebank/train.mrg.gz --evalb=EVALB/evalb --parameters=EVALB/COLLINS.prm
    pip install PYEVALB; python experiments/paper_table4/check_evaluator.py treebank/train.mrg.gz --pyevalb

The other trees are damaged copies (labels changed, constituents removed, split or moved) and
repaired random sequences of the symbols of the same tree. PYEVALB has no parameters: it gets trees
without punctuation and TOP, in which PRT is ADVP.
"""

import argparse
import random
import subprocess
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

from transformer_jax.tools.parsing.bracket_scores import (
    DELETED,
    EQUAL,
    bracket_counts,
    brackets_of,
    counts_of,
    scores_of,
)
from transformer_jax.tools.parsing.trees import TOP, Tree, normalized, read_trees, symbols_of, tree_of_symbols

LABELS = ("NP", "VP", "PP", "ADVP", "PRT", "S", "TOP")


def damaged(tree: Tree, draw: random.Random) -> Tree:
    """A copy with other labels, and constituents removed or added."""
    if tree.word:
        return tree
    children = [damaged(child, draw) for child in tree.children]
    spliced = [
        part for child in children for part in (child.children if child.children and draw.random() < 0.15 else [child])
    ]
    if len(spliced) > 2 and draw.random() < 0.2:
        cut = draw.randrange(1, len(spliced))
        spliced = [Tree(draw.choice(LABELS), tuple(spliced[:cut])), *spliced[cut:]]
    return Tree(draw.choice(LABELS) if draw.random() < 0.15 else tree.label, tuple(spliced))


def shuffled(tree: Tree, draw: random.Random) -> Tree:
    """A tree of the same words from the symbols of the tree in another order."""
    symbols, tags = symbols_of(tree, "brackets"), (leaf.label for leaf in tree.leaves())
    draw.shuffle(symbols)

    def tagged(other: Tree) -> Tree:
        if other.word:
            return other._replace(label=next(tags))
        return other._replace(children=tuple(map(tagged, other.children)))

    return tagged(tree_of_symbols(symbols, tree.sentence.split(), "brackets"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("treebank")
    parser.add_argument("--evalb", default="")
    parser.add_argument("--parameters", default="")
    parser.add_argument("--pyevalb", action="store_true")
    parser.add_argument("--trees", type=int, default=1200)
    arguments = parser.parse_args()
    draw, counts = random.Random(0), Counter()
    found = (normalized(each.tree, counts) for each in read_trees(Path(arguments.treebank)))
    trees = list(islice((tree for tree in found if tree and len(tree.sentence.split()) < 100), arguments.trees))
    pairs = [(tree, other(tree, draw)) for other in (damaged, shuffled) for tree in trees]
    print(f"{len(pairs):,} pairs; ours: {scores_of(counts_of(*zip(*pairs, strict=True)).sum(axis=0))}")
    if arguments.evalb:
        compare("EVALB", pairs, by_evalb(pairs, arguments.evalb, arguments.parameters))
    if arguments.pyevalb:
        compare("PYEVALB", pairs, by_pyevalb(pairs))


def compare(name: str, pairs: list, theirs: list[tuple[int, ...]]) -> None:
    """Prints how often matched, gold, predicted and crossing brackets agree."""
    ours = [tuple(bracket_counts(*pair)[:4]) for pair in pairs]
    differ = [index for index, both in enumerate(zip(ours, theirs, strict=True)) if both[0] != both[1]]
    repeated = sum(any(has_repeated(tree) for tree in pairs[index]) for index in differ)
    print(
        f"{name}: {len(pairs) - len(differ):,} of {len(pairs):,} pairs agree in all counts; of the others {repeated} have"
    )
    print("  a constituent twice, of one label over the same words")
    for index in differ[:5]:
        print(f"  ours {ours[index]}, theirs {theirs[index]}\n    {pairs[index][0]}\n    {pairs[index][1]}")


def has_repeated(tree: Tree) -> bool:
    """Whether two of its brackets are equal."""
    brackets = brackets_of(tree, [leaf.label in DELETED for leaf in tree.leaves()])
    return len(set(brackets)) < len(brackets)


def by_evalb(pairs: list, program: str, parameters: str) -> list[tuple[int, ...]]:
    """The counts that EVALB prints: ID, length, status, recall, precision, matched, gold, test,
    crossing, ..."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("gold", "test")]
        for file, trees in zip(files, zip(*pairs, strict=True), strict=True):
            file.write_text("".join(f"(TOP {tree})\n" for tree in trees))
        command = [program, *(["-p", parameters] if parameters else []), *map(str, files)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return [tuple(map(int, row[5:9])) for row in rows if len(row) == 12 and row[0].isdigit() and row[1].isdigit()]


def by_pyevalb(pairs: list) -> list[tuple[int, ...]]:
    """The counts of PYEVALB for trees to which the parameters were applied before."""
    from PYEVALB.parser import create_from_bracket_string
    from PYEVALB.scorer import Scorer

    found = []
    for gold, test in pairs:
        is_deleted = [leaf.label in DELETED for leaf in gold.leaves()]
        texts = [str(Tree("ALL", tuple(applied(tree, iter(is_deleted))))) for tree in (gold, test)]
        result = Scorer().score_trees(*map(create_from_bracket_string, texts))
        # The root ALL is in both.
        found.append(
            (result.matched_brackets - 1, result.gold_brackets - 1, result.test_brackets - 1, result.cross_brackets)
        )
    return found


def applied(tree: Tree, is_deleted) -> list[Tree]:
    """The tree without TOP and deleted words, and with ADVP for PRT."""
    if tree.word:
        return [] if next(is_deleted) else [tree]
    children = [kept for child in tree.children for kept in applied(child, is_deleted)]
    if tree.label == TOP or not children:
        return children
    return [Tree(EQUAL.get(tree.label, tree.label), tuple(children))]


if __name__ == "__main__":
    main()
