"""A generated treebank: a small probabilistic grammar of English whose words determine the tree.

Attachment, the hard part of parsing, depends on words: ``of`` and ``from`` phrases belong to the
noun before them, ``with`` and ``during`` phrases to the verb, and a clause after ``who`` to the
last noun.
"""

import random

from transformer_jax.tools.parsing.trees import Tree

# Right-hand sides with their weights. Below depth ``DEEP`` the first rule is used, which does not
# recur.
RULES = {
    "S": "6 NP VP . | 1 NP ADVP VP . | 1.5 PP , NP VP . | 1 S- , CC S- . | 0.7 `` S- , '' NP VSAY .",
    "S-": "1 NP VP",
    "NP": "5 DT NN | 2 DT JJ NN | 2 NNP | 1 PRP | 1 DT JJ JJ NN | 2 NP+ PPOF | 1 NP+ SBARR | 1 NP+ CC NP+",
    "NP+": "3 DT NN | 1 DT JJ NN | 1 NNS",
    "VP": "4 VBD NP | 1 VBD | 2 VBD NP PP | 1 VBD PP | 1 VBD SBAR | 1 MD VPB | 0.7 VBD ADJP | 0.5 VBD PRT NP",
    "VPB": "3 VB NP | 1 VB NP PP",
    "VSAY": "1 VBDS",
    "PP": "1 IN NP+ | 1 IN NP",
    "PPOF": "1 OF NP+ | 1 OF NP",
    "SBAR": "1 THAT S-",
    "SBARR": "1 WHNP SR",
    "SR": "1 VPR",
    "VPR": "2 VBD NP+ | 1 VBD",
    "WHNP": "1 WP",
    "ADJP": "2 RB JJ | 1 JJ",
    "ADVP": "1 RB",
    "PRT": "1 RP",
}
LABELS = {"S-": "S", "SR": "S", "NP+": "NP", "VPB": "VP", "VPR": "VP", "VSAY": "VP", "PPOF": "PP", "SBARR": "SBAR"}
WORDS = {
    "DT": "the a every this some no",
    "NN": "dog cat child teacher garden letter bridge window story river market engine doctor song picture train",
    "NNS": "dogs cats children teachers letters stories rivers engines songs trains",
    "NNP": "Ann Bob Mary Paris London Peter",
    "PRP": "he she it they",
    "JJ": "old small red quiet famous strange young heavy bright empty",
    "RB": "very quite often never slowly suddenly",
    "VBD": "saw liked found moved painted followed heard sold watched crossed",
    "VBDS": "said replied added",
    "VB": "see like find move paint follow hear sell",
    "MD": "will can must should",
    "IN": "with during near behind before",
    "OF": "of from",
    "THAT": "that because",
    "WP": "who which",
    "RP": "up out down",
    "CC": "and or but",
}
TAGS = {"VBDS": "VBD", "OF": "IN", "THAT": "IN"}
DEEP = 7


def random_tree(generator: random.Random, symbol: str = "S", depth: int = 0) -> Tree:
    """Sample a tree from the grammar."""
    if symbol not in RULES:
        return Tree(TAGS.get(symbol, symbol), (), generator.choice(WORDS.get(symbol, symbol).split()))
    weights, rules = zip(*(text.split(maxsplit=1) for text in RULES[symbol].split(" | ")), strict=True)
    rule = rules[0] if depth >= DEEP else generator.choices(rules, list(map(float, weights)))[0]
    children = tuple(random_tree(generator, part, depth + 1) for part in rule.split())
    return Tree(LABELS.get(symbol, symbol), children)
