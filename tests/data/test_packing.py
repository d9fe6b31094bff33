import numpy as np
import pytest

from transformer_jax.data import packing
from transformer_jax.data.packing import filled_widths, pack_rows, row_widths


def test_a_literal_packing():
    pairs, offsets = pack_rows(np.array([[3, 2, 4], [3, 2, 4]]), np.arange(3), (5, 5))
    assert (pairs.tolist(), offsets.tolist()) == ([0, 1, 2], [0, 2, 3])
    pairs, offsets = pack_rows(np.array([[3, 2, 4], [3, 3, 1]]), np.array([2, 0, 1]), (5, 5))
    assert (pairs.tolist(), offsets.tolist()) == ([2, 0, 1], [0, 1, 2, 3]), "each side has to fit"
    pairs, offsets = pack_rows(np.array([[5, 7, 3, 5]] * 2), np.arange(4), (10, 10))
    assert (pairs.tolist(), offsets.tolist()) == ([0, 3, 1, 2], [0, 2, 4]), "a pair goes where it leaves the least room"
    with pytest.raises(ValueError, match=r"longer than the \(8, 9\) positions"):
        pack_rows(np.array([[3, 9], [3, 3]]), np.arange(2), (8, 9))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("lane_pairs", [50, 8192])
def test_rows_overflow_on_neither_side_and_hold_every_pair_once(seed, lane_pairs, monkeypatch):
    monkeypatch.setattr(packing, "LANE_PAIRS", lane_pairs)
    generator, number = np.random.default_rng(seed), 733
    source, target = generator.integers(1, 33, (2, number))
    pairs, offsets = pack_rows(np.stack([source, target]), generator.permutation(number), (40, 32))
    np.testing.assert_array_equal(np.sort(pairs), np.arange(number))
    assert offsets[0] == 0 and offsets[-1] == number
    assert (np.diff(offsets) > 0).all(), "no row is empty"
    for side, width in ((source, 40), (target, 32)):
        assert np.add.reduceat(side[pairs], offsets[:-1]).max() <= width


def test_widths_follow_the_tokens_of_each_side_and_hold_the_longest_pair():
    source, target = np.array([20, 30]), np.array([24, 36])
    assert row_widths(np.stack([source, target]), 64, 8) == [(56, 64)]
    assert row_widths(np.stack([target, source]), 16, 8) == [(16, 16), (32, 24), (40, 32)]
    assert row_widths(np.stack([source, target]), 64, 16) == [(48, 64)]
    assert row_widths(np.array([[3], [90]]), 32, 8) == [(8, 32), (8, 64), (8, 96)]


def test_wide_rows_are_for_long_pairs_and_short_ones_complete_their_batches():
    lengths, order = np.array([30, 9, 8, 7, 6, 5, 4, 3]), np.arange(8)[::-1]
    wide, narrow = filled_widths(np.stack([lengths] * 2), order, [(8, 8), (32, 32)], 64)
    assert wide[1] == (32, 32) and lengths[wide[0]].tolist() == [9, 30, 3, 4, 5, 6], "two rows are a batch of 64 tokens"
    assert narrow[1] == (8, 8) and lengths[narrow[0]].tolist() == [7, 8]
    ((everything, widths),) = filled_widths(np.stack([lengths] * 2), order, [(8, 8), (32, 32)], 99)
    assert widths == (32, 32) and sorted(everything) == list(range(8))
