"""Orders of indices are stable and reproducible, and computed once."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import jax
import numpy as np
import pytest

from transformer_jax.data import orders, packing
from transformer_jax.data.orders import cached_epochs, stable_order


@pytest.mark.parametrize("number", [0, 1, 7, 1000])
@pytest.mark.parametrize("largest", [3, 1 << 50])
def test_sorting_is_stable(number, largest):
    keys = np.random.default_rng(0).integers(0, largest, number)
    np.testing.assert_array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


def test_lanes_are_packed_in_groups(monkeypatch):
    lengths, order = np.random.default_rng(0).integers(1, 20, (2, 300)), np.arange(300)
    whole = packing.pack_rows(lengths, order, (20, 20), lanes=7)
    monkeypatch.setattr(packing, "LANES_AT_ONCE", 3)
    for ours, expected in zip(packing.pack_rows(lengths, order, (20, 20), lanes=7), whole, strict=True):
        np.testing.assert_array_equal(ours, expected)
    pairs, offsets = packing.pack_rows(np.zeros((2, 0), int), order[:0], (20, 20))
    assert (pairs.tolist(), offsets.tolist()) == ([], [0])


@pytest.mark.parametrize("kind", ["buckets", "packed", "tokens"])
def test_plans_do_not_depend_on_the_size_of_blocks(kind, monkeypatch):
    from data.test_batch_plan import epoch_of, make_plan

    whole = epoch_of(make_plan(kind, 700), 1)
    monkeypatch.setattr(orders, "BLOCK_ITEMS", 64)
    assert jax.tree.all(jax.tree.map(np.array_equal, epoch_of(make_plan(kind, 700), 1), whole))


def test_readers_of_an_epoch_do_not_wait_for_the_next():
    computed, go = [], Event()

    @cached_epochs
    def order(epoch):
        computed.append(epoch)
        assert epoch < 2 or go.wait(20)
        return [epoch]

    assert (order(0), order(1)) == ([0], [1])
    next_epochs = [ThreadPoolExecutor(1).submit(order, 2) for _ in range(2)]
    assert order(1) == [1]
    go.set()
    assert [next_epoch.result() for next_epoch in next_epochs] == [[2], [2]]
    assert order(1) == [1] and computed == [0, 1, 2]
