"""Orders of indices are stable and reproducible, and computed once."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import jax
import numpy as np
import pytest

from transformer_jax.data import orders, packing
from transformer_jax.data.orders import cached_epochs, random_order, stable_order


@pytest.mark.parametrize("number", [0, 1, 7, 1000])
@pytest.mark.parametrize("largest", [3, 1 << 50])
def test_sorting_is_stable(number, largest):
    keys = np.random.default_rng(0).integers(0, largest, number)
    np.testing.assert_array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


def test_a_random_order_sorts_one_stream_of_philox():
    stream = np.random.Philox(key=np.array([5, 6], np.uint64), counter=np.array([0, 0, 0, 7], np.uint64))
    found = random_order(1001, seed=5, epoch=6, stream=7)
    np.testing.assert_array_equal(found, np.argsort(stream.random_raw(1001), kind="stable"))


def test_lanes_are_packed_in_groups(monkeypatch):
    lengths, order = np.random.default_rng(0).integers(1, 20, (2, 300)), np.arange(300)
    whole = packing.pack_rows(lengths, order, (20, 20), lanes=7)
    monkeypatch.setattr(packing, "LANES_AT_ONCE", 3)
    for ours, expected in zip(packing.pack_rows(lengths, order, (20, 20), lanes=7), whole, strict=True):
        np.testing.assert_array_equal(ours, expected)
    pairs, offsets = packing.pack_rows(np.zeros((2, 0), int), order[:0], (20, 20))
    assert (pairs.tolist(), offsets.tolist()) == ([], [0])


def test_buckets_do_not_depend_on_the_size_of_blocks(monkeypatch):
    from data.test_batch_plan import epoch_of, make_plan

    whole = epoch_of(make_plan("buckets", 700), 1)
    monkeypatch.setattr(orders, "BLOCK_ITEMS", 64)
    assert jax.tree.all(jax.tree.map(np.array_equal, epoch_of(make_plan("buckets", 700), 1), whole))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 6, 7])
def test_a_half_of_a_lane_is_rounded_as_the_sum_of_the_space_of_all_pairs(length):
    for lanes in range(1, 12, 2):
        # The exact number of lanes is a half.
        lengths = np.full((2, packing.LANE_ROWS * lanes * 10 // 2), length, np.uint16)
        expected = round((lengths[0] / (10 * length) + lengths[1] / (10 * length)).sum() / 2 / packing.LANE_ROWS)
        pairs = np.arange(lengths.shape[1])
        assert packing.longest_first(lengths, pairs, (10 * length, 10 * length))[1] == max(expected, 1)


def test_readers_of_an_epoch_do_not_wait_for_the_next():
    made, go = [], Event()

    @cached_epochs
    def order(epoch):
        made.append(epoch)
        assert epoch < 2 or go.wait(20)
        return [epoch]

    assert (order(0), order(1)) == ([0], [1])
    next_epochs = [ThreadPoolExecutor(1).submit(order, 2) for _ in range(2)]
    assert order(1) == [1]
    go.set()
    assert [each.result() for each in next_epochs] == [[2], [2]]
    assert order(1) == [1] and made == [0, 1, 2]
