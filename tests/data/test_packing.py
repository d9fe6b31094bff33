import numpy as np
import pytest

from transformer_jax.data import packing
from transformer_jax.data.packing import pack_rows


def test_a_literal_packing():
    pairs, offsets = pack_rows(np.array([3, 2, 4]), np.array([3, 2, 4]), np.arange(3), width=5)
    assert (pairs.tolist(), offsets.tolist()) == ([0, 1, 2], [0, 2, 3])
    pairs, offsets = pack_rows(np.array([3, 2, 4]), np.array([3, 3, 1]), np.array([2, 0, 1]), width=5)
    assert (pairs.tolist(), offsets.tolist()) == ([2, 0, 1], [0, 1, 2, 3]), "each side has to fit"


def test_a_pair_goes_where_it_leaves_the_least_room():
    lengths = np.array([5, 7, 3, 5])
    pairs, offsets = pack_rows(lengths, lengths, np.arange(4), width=10)
    assert (pairs.tolist(), offsets.tolist()) == ([0, 3, 1, 2], [0, 2, 4])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lane_pairs", [50, 8192])
def test_rows_overflow_on_neither_side_and_hold_every_pair_once(seed, lane_pairs, monkeypatch):
    monkeypatch.setattr(packing, "LANE_PAIRS", lane_pairs)
    generator = np.random.default_rng(seed)
    number = 733
    source, target = generator.integers(1, 33, (2, number))
    pairs, offsets = pack_rows(source, target, generator.permutation(number), width=32)
    np.testing.assert_array_equal(np.sort(pairs), np.arange(number))
    assert offsets[0] == 0 and offsets[-1] == number
    assert (np.diff(offsets) > 0).all(), "no row is empty"
    for side in (source, target):
        assert np.add.reduceat(side[pairs], offsets[:-1]).max() <= 32


def test_short_sentences_leave_little_room():
    lengths = np.random.default_rng(0).integers(2, 30, 20_000)
    _, offsets = pack_rows(lengths, lengths, np.arange(len(lengths)), width=128)
    assert lengths.sum() / ((len(offsets) - 1) * 128) > 0.97


def test_a_pair_that_fits_nowhere_is_refused():
    with pytest.raises(ValueError, match="longer than the 8 positions"):
        pack_rows(np.array([3, 9]), np.array([3, 3]), np.arange(2), width=8)
