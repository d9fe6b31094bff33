"""IBM model 1 against expectation maximization in plain Python."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from transformer_jax.array_types import EOS_ID, PAD_ID
from transformer_jax.data import ibm_model1
from transformer_jax.data.ibm_model1 import lexical_table
from transformer_jax.data.token_store import Side

THE, HOUSE, BOOK, A = 4, 5, 6, 7
DAS, HAUS, BUCH, EIN = 4, 5, 6, 7
PAIRS = [([THE, HOUSE], [DAS, HAUS]), ([THE, BOOK], [DAS, BUCH]), ([A, BOOK], [EIN, BUCH]), ([A, A], []), ([], [EIN])]
VOCABULARY = 9


def side(sentences) -> Side:
    whole = [[*sentence, EOS_ID] for sentence in sentences]
    return Side(np.concatenate(whole), np.cumsum([0, *map(len, whole)]))


def plain_model1(pairs, iterations):
    probabilities = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for sources, targets in pairs:
            for target in targets:
                weights = [probabilities[source, target] for source in [*sources, PAD_ID]]
                for source, weight in zip([*sources, PAD_ID], weights, strict=True):
                    counts[source, target] += weight / sum(weights)
                    totals[source] += weight / sum(weights)
        probabilities = {key: count / totals[key[0]] for key, count in counts.items()}
    return probabilities


@pytest.mark.parametrize("positions_at_once", [1, 1 << 20])
def test_it_is_expectation_maximization(monkeypatch, positions_at_once):
    monkeypatch.setattr(ibm_model1, "POSITIONS_AT_ONCE", positions_at_once)
    table = lexical_table(*map(side, zip(*PAIRS, strict=True)), np.array([0, 1, 2, 3, 4]), VOCABULARY, 7)
    expected = plain_model1(PAIRS, 7)
    found = {(int(s), int(t)): p for s, t, p in zip(*table, strict=True)}
    assert found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key]) for key in expected)
    best = table.best(2, VOCABULARY)
    assert best.dtype == np.int32 and best[[THE, HOUSE, BOOK], 0].tolist() == [DAS, HAUS, BUCH]
    for source, row in itertools.product([8, EOS_ID], best[[8, EOS_ID]]):
        assert not row.any(), source


def test_only_the_pairs_asked_for_count():
    table = lexical_table(*map(side, zip(*PAIRS, strict=True)), np.array([0, 2]), VOCABULARY)
    assert set(table.sources.tolist()) == {PAD_ID, THE, HOUSE, A, BOOK}
    assert DAS not in table.best(9, VOCABULARY)[BOOK]
