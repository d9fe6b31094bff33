"""Baselines of parsing: a treebank PCFG with CKY, Markovized or not, and right-branching trees.

    python experiments/paper_table4/baselines.py treebank --vertical=2 --horizontal=2 --output=pcfg.mrg
    python experiments/paper_table4/baselines.py treebank --right_branching

Vertical order 1 and unlimited horizontal order is the plain treebank grammar (Charniak 1996);
orders 2, 2 are in Klein and Manning (2003, figure 2). Rules have their relative frequencies. Tags
of a word: relative frequencies, interpolated with the frequencies of the rare words of its class
(capital letters, digits, hyphens, suffixes). No tags are given. A sentence without a parse gets
right-branching trees.
"""

import argparse
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from transformer_jax.tools.parsing.bracket_scores import counts_of, f1_by_length, scores_of
from transformer_jax.tools.parsing.corpus import Treebank
from transformer_jax.tools.parsing.parsing_settings import TreebankConfig
from transformer_jax.tools.parsing.tokenizers import class_of
from transformer_jax.tools.parsing.trees import Tree

RARE = 2
SMOOTHING = 2.0
UNARY_CHAIN = 3
ROOT = "ROOT"


class Grammar:
    """A binarized PCFG: symbols are numbers; ``A -> B C`` and ``A -> B`` with logarithms of
    probabilities, sorted by A."""

    def __init__(self, trees: list[Tree], vertical: int, horizontal: int) -> None:
        self.vertical, self.horizontal = vertical, horizontal
        binary: Counter[tuple[str, str, str]] = Counter()
        unary: Counter[tuple[str, str]] = Counter()
        self.words: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for tree in trees:
            unary[ROOT, self.add(tree, (ROOT,), binary, unary)] += 1
        totals: Counter[str] = Counter()
        for rules in (binary, unary):
            for rule, count in rules.items():
                totals[rule[0]] += count
        tags = {tag for counts in self.words.values() for tag in counts}
        names = sorted({name for rule in (*binary, *unary) for name in rule} | tags)
        self.names, self.ids = names, {name: number for number, name in enumerate(names)}
        self.binary, self.binary_scores = self.table(binary, totals, 3)
        self.unary, self.unary_scores = self.table(unary, totals, 2)
        self.starts = np.flatnonzero(np.r_[True, self.binary[1:, 0] != self.binary[:-1, 0]])
        self.parents = self.binary[self.starts, 0]
        self.tag_counts = sum(self.words.values(), Counter())
        self.classes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word, counts in self.words.items():
            if counts.total() <= RARE:
                self.classes[class_of(word)].update(counts)
        self.any_rare = sum(self.classes.values(), Counter())

    def add(self, tree: Tree, above: tuple[str, ...], binary: Counter, unary: Counter) -> str:
        """Counts the rules of a tree; returns the name of its root, with labels of ``vertical`` - 1
        ancestors."""
        if tree.word:
            self.words[tree.word][tree.label] += 1
            return tree.label
        name = "^".join((tree.label, *above[: self.vertical - 1]))
        below = (tree.label, *above)
        children = [self.add(child, below, binary, unary) for child in tree.children]
        labels = [child.label for child in tree.children]
        if len(children) == 1:
            unary[name, children[0]] += 1
            return name
        parent = name
        for index, child in enumerate(children[:-2]):
            memory = labels[max(0, index + 1 - self.horizontal) : index + 1]
            rest = f"@{name}:{' '.join(memory)}"
            binary[parent, child, rest] += 1
            parent = rest
        binary[parent, children[-2], children[-1]] += 1
        return name

    def table(self, rules: Counter, totals: Counter, width: int) -> tuple[np.ndarray, np.ndarray]:
        rows = sorted(
            (tuple(self.ids[name] for name in rule), np.log(count / totals[rule[0]])) for rule, count in rules.items()
        )
        return np.array([row for row, _ in rows]).reshape(-1, width), np.array([score for _, score in rows])

    def tag_scores(self, word: str) -> np.ndarray:
        """log P(tag | word) - log P(tag), which is log P(word | tag) but for a constant."""
        counts, of_class = self.words.get(word, Counter()), self.classes.get(class_of(word), self.any_rare)
        found, seen, rare, total = (
            np.full(len(self.names), -np.inf),
            counts.total(),
            of_class.total(),
            self.tag_counts.total(),
        )
        for tag in {*counts, *of_class}:
            share = (counts[tag] + SMOOTHING * of_class[tag] / rare) / (seen + SMOOTHING)
            found[self.ids[tag]] = np.log(share) - np.log(self.tag_counts[tag] / total)
        return found

    def parse(self, words: list[str]) -> Tree | None:
        """The most probable tree by CKY; None if there is none."""
        length = len(words)
        scores = np.full((length, length + 1, len(self.names)), -np.inf)
        back: dict[tuple[int, int], tuple] = {}
        for start, word in enumerate(words):
            scores[start, start + 1] = self.tag_scores(word)
            back[start, start + 1] = None, self.close(scores[start, start + 1])
        _, left, right = self.binary.T
        for width in range(2, length + 1):
            for start in range(length - width + 1):
                end = start + width
                splits = np.arange(start + 1, end)
                first, second = scores[start, splits], scores[splits, end]
                # The rules whose children begin and end here.
                rules = np.flatnonzero((first.max(axis=0) > -np.inf)[left] & (second.max(axis=0) > -np.inf)[right])
                cell = first[:, left[rules]] + second[:, right[rules]]
                best_split = np.argmax(cell, axis=0)
                best = np.full(len(left), -np.inf)
                best[rules] = cell[best_split, np.arange(len(rules))] + self.binary_scores[rules]
                scores[start, end, self.parents] = np.maximum.reduceat(best, self.starts)
                back[start, end] = (rules, best[rules], best_split), self.close(scores[start, end])
        if scores[0, length, self.ids[ROOT]] == -np.inf:
            return None
        (tree,) = self.build(words, back, 0, length, self.ids[ROOT])
        return tree

    def close(self, scores: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Adds chains of unary rules to the scores of a span; returns, step by step, the rule of
        each symbol that improved."""
        heads, child = self.unary.T
        steps = []
        for _ in range(UNARY_CHAIN):
            found = scores[child] + self.unary_scores
            order = np.argsort(found, kind="stable")
            best = np.full(len(scores), -1)
            best[heads[order]] = order
            improved = np.flatnonzero((best >= 0) & (np.where(best >= 0, found[best], -np.inf) > scores))
            if not len(improved):
                break
            scores[improved] = found[best[improved]]
            steps.append((improved, child[best[improved]]))
        return steps

    def build(self, words: list[str], back: dict, start: int, end: int, symbol: int) -> list[Tree]:
        """The trees of a symbol over a span: several where it only exists since rules are
        binary."""
        found, steps = back[start, end]
        chain = [symbol]
        for improved, children in reversed(steps):
            position = np.searchsorted(improved, chain[-1])
            if position < len(improved) and improved[position] == chain[-1]:
                chain.append(children[position])
        bottom = chain[-1]
        if found is None:
            trees = [Tree(self.names[bottom], (), words[start])]
        else:
            rules, best, best_split = found
            of_bottom = np.flatnonzero(self.binary[rules, 0] == bottom)
            chosen = of_bottom[np.argmax(best[of_bottom])]
            split = start + 1 + best_split[chosen]
            _, first, second = self.binary[rules[chosen]]
            trees = self.build(words, back, start, split, first) + self.build(words, back, split, end, second)
            if not self.names[bottom].startswith("@"):
                trees = [Tree(self.names[bottom].partition("^")[0], tuple(trees))]
        for upper in reversed(chain[:-1]):
            name = self.names[upper]
            trees = trees if name == ROOT else [Tree(name.partition("^")[0], tuple(trees))]
        return trees


def right_branching(words: list[str], tags: list[str]) -> Tree:
    """(S w1 (S w2 (S w3 ...))), the final punctuation mark below the root."""
    leaves = [Tree(tag, (), word) for tag, word in zip(tags, words, strict=True)]
    last = [leaves.pop()] if len(leaves) > 1 and tags[-1] == "." else []
    tree = Tree("S", (leaves[-1],))
    for leaf in reversed(leaves[:-1]):
        tree = Tree("S", (leaf, tree))
    return tree._replace(children=(*tree.children, *last))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("treebank", help="folder with train.mrg[.gz] and the split")
    parser.add_argument("--split", default="test")
    parser.add_argument("--vertical", type=int, default=2)
    parser.add_argument("--horizontal", type=int, default=2)
    parser.add_argument("--right_branching", action="store_true")
    parser.add_argument("--output", default="", help="file for the trees")
    arguments = parser.parse_args()
    corpus = Treebank(TreebankConfig(source="treebank", directory=arguments.treebank))
    gold = list(corpus.trees(arguments.split))
    grammar = None
    if not arguments.right_branching:
        grammar = Grammar(list(corpus.trees("train")), arguments.vertical, arguments.horizontal)
        print(f"{len(grammar.names):,} symbols, {len(grammar.binary):,} binary and {len(grammar.unary):,} unary rules")
    began, found, failed = time.perf_counter(), [], 0
    for tree in gold:
        words, tags = tree.sentence.split(), [leaf.label for leaf in tree.leaves()]
        parsed = grammar.parse(words) if grammar else None
        failed += parsed is None
        found.append(parsed or right_branching(words, tags))
    seconds = time.perf_counter() - began
    counts = counts_of(gold, found)
    print(f"{scores_of(counts.sum(axis=0))}\n{f1_by_length(counts)}")
    print(f"{len(gold)} sentences, {failed} without a parse, {len(gold) / seconds:.1f} sentences/s")
    if arguments.output:
        Path(arguments.output).write_text("".join(f"{tree}\n" for tree in found), encoding="utf-8")


if __name__ == "__main__":
    main()
