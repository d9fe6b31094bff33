"""A corpus whose sides are shifted against each other is told from one that is not, with the
line."""

import random

import numpy as np
import pytest

from transformer_jax.data.synthetic.grammar import GrammarCorpus
from transformer_jax.tools.data_check.line_shift import GROUP, line_shift

LINES = 1200


def found(sources, targets):
    lengths = np.array([list(map(len, pair)) for pair in zip(sources, targets, strict=True)])
    return line_shift(range(len(lengths)), lengths)


def with_extra_line(targets, line):
    """A line too many before the one at ``line``, from 1."""
    return [*targets[: line - 1], "noch eine Zeile", *targets[line - 1 : -1]]


def without_line(targets, line):
    return [*targets[: line - 1], *targets[line:], "noch eine Zeile"]


@pytest.fixture(scope="module")
def sides():
    return tuple(zip(*GrammarCorpus(LINES, 0).pairs("train"), strict=True))


@pytest.fixture(scope="module")
def lengths_only():
    """Other words, like lengths, as between scripts."""
    rng = random.Random(0)
    lengths = [rng.randrange(4, 30) for _ in range(LINES)]
    sources = [" ".join(rng.choices("bcdfg", k=length)) for length in lengths]
    return sources, ["".join(rng.choices("\u4e00\u4e01\u4e03", k=length + rng.randrange(4))) for length in lengths]


@pytest.mark.parametrize("corpus", ["sides", "lengths_only"])
def test_the_line_from_which_on_a_side_is_shifted(corpus, request):
    sources, targets = request.getfixturevalue(corpus)
    assert found(sources, targets).stretches == [(1, 0)]
    for change, lag in ((with_extra_line, 1), (without_line, -1)):
        assert found(sources, change(targets, 1)).stretches == [(1, lag)]
        (start, first), (line, second) = found(sources, change(targets, 701)).stretches
        assert (start, first, second) == (1, 0, lag) and abs(line - 701) <= 8
    # Lines are missing in one place, and too many in another.
    mended = found(sources, without_line(without_line(with_extra_line(with_extra_line(targets, 301), 301), 801), 801))
    assert [lag for _, lag in mended.stretches] == [0, 2, 0] and mended.is_shifted


def test_where_nothing_is_known_nothing_is_said(sides):
    sources, targets = sides
    unknown = found(sources, random.Random(0).sample(targets, len(targets)))
    assert (unknown.stretches, unknown.lengths_agree) == ([(1, 0)], False)
    assert found(sources, targets).lengths_agree
    assert not found(sources[: GROUP - 1], with_extra_line(targets, 1)[: GROUP - 1]).is_shifted
    assert found([], []).stretches == found(["a"] * 100, ["b"] * 100).stretches == [(1, 0)]
