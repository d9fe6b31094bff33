"""Orders that are computed in parts equal the ones that NumPy computes at once."""

import numpy as np
import pytest

from transformer_jax.data import orders, packing
from transformer_jax.data.orders import random_order, sorted_indices


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(orders, "BLOCK_ITEMS", 64)
    monkeypatch.setattr(orders, "PART", 256)
    monkeypatch.setattr(packing, "LANES_AT_ONCE", 1)


@pytest.mark.parametrize("number", [0, 1, 7, 1000])
@pytest.mark.parametrize(
    "kind", [lambda draws: draws % 3, lambda draws: draws, lambda draws: draws >> 52 << 52 | draws & 3]
)
def test_sorting_is_stable(number, kind, small_parts):
    keys = kind(np.random.default_rng(0).integers(0, 1 << 64, number, np.uint64))
    parts = list(sorted_indices(lambda begin, end: keys[begin:end], number))
    assert number < 1000 or len(parts) > 1
    found = np.concatenate([np.zeros(0, int), *parts])
    np.testing.assert_array_equal(found, np.argsort(keys, kind="stable"))


def test_a_random_order_sorts_one_stream_of_philox(small_parts):
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


def test_a_plan_does_not_depend_on_the_size_of_parts(request):
    from data.test_batch_plan import SETTINGS, epoch_of, make_plan

    whole = {kind: make_plan(kind, 700) for kind in SETTINGS}
    expected = {kind: epoch_of(plan, 1) for kind, plan in whole.items()}
    request.getfixturevalue("small_parts")
    for kind, batches in expected.items():
        plan = make_plan(kind, 700)
        assert plan.to_json() == whole[kind].to_json()
        for ours, theirs in zip(epoch_of(plan, 1), batches, strict=True):
            assert all(np.array_equal(mine, other) for mine, other in zip(ours, theirs, strict=True))
