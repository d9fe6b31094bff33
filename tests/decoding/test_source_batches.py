import numpy as np
import pytest

from transformer_jax.data.batches import scoring_rows
from transformer_jax.decoding.source_batches import source_batches


def test_literal_batch():
    (batch,) = source_batches([[5, 2], [6, 7, 2]], batch_tokens=32)
    assert batch.indices.tolist() == [1, 0]
    assert batch.ids.tolist() == [[6, 7, 2] + [0] * 13, [5, 2] + [0] * 14]


def test_every_sentence_comes_once_and_whole():
    random = np.random.default_rng(0)
    sources = [random.integers(4, 99, size=length) for length in random.integers(1, 60, size=200)]
    sources.append(random.integers(4, 99, size=700))
    seen = {}
    for indices, ids in source_batches(sources, batch_tokens=512, row_multiple=4):
        assert ids.shape[0] % 4 == 0
        assert ids.size <= 4 * 512 or ids.shape[0] == 4
        assert (ids[len(indices) :] == 0).all()
        for row, index in enumerate(indices):
            assert index not in seen
            seen[index] = ids[row][ids[row] != 0]
    assert len(seen) == len(sources)
    assert all((seen[index] == source).all() for index, source in enumerate(sources))


def test_one_sentence_is_one_row():
    (batch,) = source_batches([[9, 9, 2]], batch_tokens=4096)
    assert batch.ids.shape == (1, 16)
    # The rows that fit are 42, so 32: no power of four.
    assert next(source_batches([[9] * 90], batch_tokens=4096)).ids.shape == (1, 96)
    assert list(source_batches([], batch_tokens=4096)) == []
    # The last batch has rows that search would have.
    assert [batch.ids.shape for batch in source_batches([[9, 2]] * 300, batch_tokens=4096)] == [(256, 16), (64, 16)]


def test_where_programs_take_long_to_compile_there_are_two_shapes():
    sources = [[9] * (1 + index % 120) for index in range(1000)]
    batches = list(source_batches(sources, batch_tokens=4096, few_shapes=True))
    assert {batch.ids.shape for batch in batches} == {(32, 128), (64, 64)}
    assert sorted(index for batch in batches for index in batch.indices) == list(range(1000))
    assert [batch.ids.shape for batch in source_batches([[9, 2]], batch_tokens=4096, few_shapes=True)] == [(1, 16)]
    lengths = np.array([len(source) for source in sources])
    shapes = {shape for shape, *_ in scoring_rows(lengths, lengths, 4096, 1, few_shapes=True)}
    assert shapes == {(32, 128, 128), (64, 64, 64)}


@pytest.mark.parametrize("few_shapes", [False, True])
def test_scoring_never_pads_beyond_the_positions_of_the_model(few_shapes):
    lengths = np.array([100, 70, 9])
    rows = list(scoring_rows(lengths, lengths, 200, 1, longest=110, few_shapes=few_shapes))
    assert {width for (_, width, _), *_ in rows} == ({110, 64} if few_shapes else {110, 16})
