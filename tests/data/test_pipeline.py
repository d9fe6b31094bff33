"""Sentences as rows of batches, in order, by threads and processes, and for scoring."""

import itertools
from functools import partial
from threading import Event
from threading import enumerate as enumerate_threads

import jax
import numpy as np
import pytest

from transformer_jax.config import BatchingConfig, DataError
from transformer_jax.data import tensorflow_runtime
from transformer_jax.data.batch_plan import plan_batches
from transformer_jax.data.batches import make_batch, scoring_batches, token_rows
from transformer_jax.data.pair_encoding import joined
from transformer_jax.data.pipeline import prefetched, read_by_threads
from transformer_jax.sequence_types import RowParts

KINDS = ("buckets", "packed", "tokens")


def pairs_of(store):
    sides = store.source_side, store.target_side
    rows = np.arange(store.num_pairs)[:, None]
    return sorted(tuple(tuple(side.sentences(row).ids.tolist()) for side in sides) for row in rows)


@pytest.fixture
def store(store_of):
    return store_of([tuple(pair) for pair in np.random.default_rng(0).integers(1, 30, (90, 2)).tolist()])


def make_plan(store, kind):
    count = {"kind": "packed", "count": "tokens", "width_multiple": 8} if kind == "tokens" else {"kind": kind}
    config = BatchingConfig(tokens_per_update=256, packed_length=16 if kind == "tokens" else 32, num_buckets=3, **count)
    return plan_batches(store.lengths(), config, seed=3)


def take(count, store, plan, start_update):
    return list(itertools.islice(prefetched(partial(make_batch, store, plan), start_update), count))


def assert_same(batches, others):
    jax.tree.map(np.testing.assert_array_equal, batches, others)


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_has_the_sentences_of_the_store_with_their_translations(store, kind):
    plan = make_plan(store, kind)
    result = []
    for batch in take(plan.batches_per_epoch, store, plan, start_update=plan.batches_per_epoch):
        assert {leaf.dtype for leaf in jax.tree.leaves(batch)} == {np.dtype(np.int32)}
        for row in range(len(batch.source.ids)):
            for segment in range(1, batch.source.segments[row].max() + 1):
                result.append(tuple(tuple(side.ids[row][side.segments[row] == segment].tolist()) for side in batch))
        for side in batch:
            assert ((side.ids == 0) == (side.segments == 0)).all()
    assert sorted(result) == pairs_of(store)


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_processes_are_the_whole(store, kind):
    plan = make_plan(store, kind)
    for groups, count in (([[0], [1]], 2), ([[0, 1], [2], [3]], 4)):
        parts = [make_batch(store, plan, 2, RowParts(item, count)) for item in groups]
        together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        assert_same(together, make_batch(store, plan, 2))


def test_many_streams_import_tensorflow_once_and_batches_come_while_the_import_lasts(store, monkeypatch, request):
    calls, finish, tensorflow = [], Event(), tensorflow_runtime.start_tensorflow()

    def import_slowly():
        calls.append(1)
        return finish.wait(20) and tensorflow

    monkeypatch.setattr(tensorflow_runtime, "_import_without_accelerators", import_slowly)
    tensorflow_runtime.tensorflow_being_imported.cache_clear()
    request.addfinalizer(tensorflow_runtime.tensorflow_being_imported.cache_clear)
    make = partial(make_batch, store, make_plan(store, "buckets"))
    streams = [prefetched(make, start_update=0) for _ in range(3)]
    assert_same([next(streams[0]) for _ in range(20)], [make(update) for update in range(20)])
    for stream in streams[1:]:
        next(stream)
    finish.set()
    assert_same(next(streams[0]), make(20))
    assert calls == [1]


def test_threads_read_in_order_and_pass_errors_on():
    def read(update):
        if update == 5:
            raise DataError("five")
        return update

    batches = read_by_threads(read, 2, prefetch=4)
    assert list(itertools.islice(batches, 3)) == [2, 3, 4]
    with pytest.raises(DataError, match="^five$"):
        next(batches)


def test_errors_of_reads_pass_through_tensorflow():
    def read(update):
        if update == 5:
            raise DataError("five")
        return {"update": np.array([update])}

    tensorflow_runtime.start_tensorflow()
    batches = prefetched(read, 2)
    assert [next(batches)["update"].tolist() for _ in range(3)] == [[2], [3], [4]]
    with pytest.raises(DataError, match="^five$"):
        next(batches)


def test_the_end_waits_for_no_read():
    blocked, before = Event(), {*enumerate_threads()}
    batches = read_by_threads(lambda update: update if update < 4 else blocked.wait(60), 0)
    assert list(itertools.islice(batches, 4)) == [0, 1, 2, 3]
    batches.close()
    started = {*enumerate_threads()} - before
    assert started and all(thread.daemon for thread in started)
    blocked.set()


def test_packed_rows_and_nothing_is_cut():
    rows = token_rows(joined([[7, 8, 2], [9, 2], [5, 2]]), np.array([0, 2, 2, 3]), width=6)
    assert rows.ids.tolist() == [[7, 8, 2, 9, 2, 0], [0, 0, 0, 0, 0, 0], [5, 2, 0, 0, 0, 0]]
    assert rows.segments.tolist() == [[1, 1, 1, 2, 2, 0], [0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert rows.positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    assert {array.dtype for array in rows} == {np.dtype(np.int32)}
    assert not token_rows(joined([]), np.zeros(3, np.int64), width=4).ids.any()
    for width in (4, 2):
        with pytest.raises(ValueError, match=f"row of {width} positions"):
            token_rows(joined([[7, 8, 2], [9, 2]]), np.array([0, 2]), width=width)


@pytest.mark.parametrize("limit", [0, 40, 1000])
def test_scoring_has_every_pair_once_and_whole(store_of, limit):
    pairs = [*map(tuple, np.random.default_rng(0).integers(1, 70, (100, 2)).tolist()), (300, 2)]
    store, some = store_of(pairs), store_of(pairs[: limit or None])
    batches = [zip(*(side.ids for side in batch), strict=True) for batch in scoring_batches(store, 512, 4, limit=limit)]
    result = [tuple(tuple(ids[ids != 0].tolist()) for ids in row) for batch in batches for row in batch if row[0].any()]
    assert sorted(result) == pairs_of(some)
