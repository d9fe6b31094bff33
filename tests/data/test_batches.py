"""Sentences as rows of batches, and batches of a whole split for scoring."""

import numpy as np
import pytest

from transformer_jax.data.batches import scoring_batches, token_rows
from transformer_jax.data.pair_encoding import joined


def ids_of(side, index):
    return side.sentences(np.array([index])).ids.tolist()


def test_packed_rows():
    rows = token_rows(joined([[7, 8, 2], [9, 2], [5, 2]]), np.array([0, 2, 2, 3]), width=6)
    assert rows.ids.tolist() == [[7, 8, 2, 9, 2, 0], [0, 0, 0, 0, 0, 0], [5, 2, 0, 0, 0, 0]]
    assert rows.segments.tolist() == [[1, 1, 1, 2, 2, 0], [0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert rows.positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    assert {array.dtype for array in rows} == {np.dtype(np.int32)}
    assert not token_rows(joined([]), np.zeros(3, np.int64), width=4).ids.any()


@pytest.mark.parametrize("width", [4, 2])
def test_nothing_is_cut(width):
    with pytest.raises(ValueError, match=f"row of {width} positions"):
        token_rows(joined([[7, 8, 2], [9, 2]]), np.array([0, 2]), width=width)


def sentences_of(batch):
    for source, target in zip(batch.source.ids, batch.target.ids, strict=True):
        if source.any():
            yield tuple(source[source != 0].tolist()), tuple(target[target != 0].tolist())


@pytest.fixture
def store(store_of):
    lengths = np.random.default_rng(0).integers(1, 70, (100, 2)).tolist()
    return store_of([*map(tuple, lengths), (300, 2)])


@pytest.mark.parametrize("limit", [0, 40, 1000])
def test_scoring_has_every_pair_once_and_whole(store, limit):
    found = [pair for batch in scoring_batches(store, 512, 4, limit=limit) for pair in sentences_of(batch)]
    number = min(limit or store.num_pairs, store.num_pairs)
    expected = [
        (tuple(ids_of(store.source_side, index)), tuple(ids_of(store.target_side, index))) for index in range(number)
    ]
    assert sorted(found) == sorted(expected)
