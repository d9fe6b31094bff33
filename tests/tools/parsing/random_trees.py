"""Random trees over given words."""

import random

from transformer_jax.tools.parsing.trees import Tree

LABELS = ("S", "NP", "VP", "TOP")


def random_tree(words: list[str], draw: random.Random) -> Tree:
    """A tree of at least one constituent; unary chains and constituents of one word are
    frequent."""
    if len(words) == 1 and draw.random() < 0.5:
        return Tree(draw.choice(LABELS), (Tree("XX", (), words[0]),))
    if draw.random() < 0.2:
        return Tree(draw.choice(LABELS), (random_tree(words, draw),))
    cuts = sorted(draw.sample(range(1, len(words)), min(draw.randrange(3), len(words) - 1)))
    parts = [words[start:end] for start, end in zip([0, *cuts], [*cuts, len(words)], strict=True)]
    children = [
        Tree("XX", (), part[0]) if len(part) == 1 and draw.random() < 0.7 else random_tree(part, draw) for part in parts
    ]
    return Tree(draw.choice(LABELS), tuple(children))


def random_trees(count: int, longest: int = 8) -> list[Tree]:
    draw = random.Random(0)
    lengths = (draw.randrange(1, longest + 1) for _ in range(count))
    return [random_tree([f"w{number}" for number in range(length)], draw) for length in lengths]
