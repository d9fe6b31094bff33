import subprocess
import sys

import numpy as np
import pytest

from transformer_jax.data.evaluation_batches import scoring_batches, scoring_rows


def sentences_of(batch):
    for source, target in zip(batch.source.ids, batch.target.ids, strict=True):
        if source.any():
            yield tuple(source[source != 0].tolist()), tuple(target[target != 0].tolist())


@pytest.fixture
def store(store_of):
    lengths = np.random.default_rng(0).integers(1, 70, (100, 2)).tolist()
    return store_of([*map(tuple, lengths), (300, 2)])


@pytest.mark.parametrize("limit", [0, 1, 40, 1000])
def test_every_pair_once_and_whole(store, limit):
    found = [pair for batch in scoring_batches(store, 512, 4, limit=limit) for pair in sentences_of(batch)]
    number = min(limit or store.num_pairs, store.num_pairs)
    expected = [(tuple(store.source(index).tolist()), tuple(store.target(index).tolist())) for index in range(number)]
    assert sorted(found) == sorted(expected)


def test_shapes_are_few(store):
    shapes = {batch.source.ids.shape for batch in scoring_batches(store, 512, 4)}
    assert shapes == {(4, 512), (4, 128), (8, 64), (16, 32), (32, 16)}
    assert all(batch.source.ids.shape == batch.target.ids.shape for batch in scoring_batches(store, 512, 4))


def test_only_the_last_batch_has_free_rows():
    lengths = np.random.default_rng(1).integers(1, 70, 333)
    *full, last = scoring_rows(lengths, lengths, 512, 4)
    assert all(len(batch.pairs) == batch.shape[0] for batch in full)
    assert 0 < len(last.pairs) <= last.shape[0]
    assert last.offsets[-1] == len(last.pairs)


def test_scoring_does_without_tensorflow():
    program = "import sys; import transformer_jax.data.evaluation_batches; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
