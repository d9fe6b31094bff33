"""Segmented search finds what the search in one piece finds, whatever leaves the batch and however
arrays grow."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding import lookup_model
from jitted_model import random_params

from transformer_jax.config.language_model import DecoderOnlyConfig
from transformer_jax.decoding import segmented_search
from transformer_jax.decoding.beam_search import Hypotheses, Rules, beam_search, plain_search
from transformer_jax.decoding.segmented_search import (
    ONE_DEVICE,
    SearchBatch,
    SearchDevices,
    SegmentedSearch,
    capacities_of,
    search_in_threads,
)
from transformer_jax.decoding.waiting_groups import WaitingGroups
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.models.interface import call

WIDTH, ROWS, MOST = 3, 32, 75


@pytest.fixture(scope="module")
def tables():
    """Most sentences end within few tokens, some go on to their limits."""
    tables = lookup_model.random_tables(ROWS, 9, seed=3, eos_bias=2.0)
    tables[::9, :, lookup_model.EOS_ID] -= 12.0
    return tables


@pytest.fixture(scope="module")
def limits():
    return np.array([MOST - row if row % 2 else (0, 1, 40, 64)[row // 2 % 4] for row in range(ROWS)], np.int32)


@pytest.fixture(autouse=True)
def small_batches_shrink_too(monkeypatch):
    monkeypatch.setattr(segmented_search, "MIN_ROWS", 8)


def segmented(tables, limits, num_results: int, devices: SearchDevices = ONE_DEVICE, batches: int = 1):
    """The hypotheses by row, and the numbers of rows and the capacities that were searched with."""
    seen = []

    def step(token_ids, cache):
        seen.append((len(token_ids), cache.per_beam["history"].shape[2] - 1))
        return lookup_model.step(token_ids, cache)

    search = SegmentedSearch(
        lambda params, inputs, capacity: lookup_model.make_cache(inputs, WIDTH, capacity),
        lambda params: step,
        plain_search(Rules(WIDTH, num_results, 0.6)),
        devices,
    )
    parts = np.split(np.arange(ROWS), batches)
    given = (SearchBatch(part, jnp.asarray(tables[part]), limits[part], MOST) for part in parts)
    found = {}

    def report(indices, hypotheses):
        for row, index in enumerate(indices):
            assert index not in found
            found[int(index)] = jax.tree.map(lambda leaf, row=row: leaf[row], hypotheses)

    search.search({}, given, report)
    return found, list(dict.fromkeys(seen))


@pytest.mark.parametrize(
    ("num_results", "batches", "devices"),
    [
        (1, 1, ONE_DEVICE),
        (WIDTH, 4, SearchDevices(threads=2)),
        *(
            pytest.param(1, 4, devices, marks=pytest.mark.slow)
            for devices in (SearchDevices(few_shapes=True), SearchDevices(waiting_bytes=1))
        ),
    ],
)
def test_it_finds_what_one_search_finds(tables, limits, num_results, batches, devices, monkeypatch):
    waiting, set_aside = [], WaitingGroups.set_aside
    monkeypatch.setattr(
        WaitingGroups, "set_aside", lambda *given: (waiting.append(len(given[0])), set_aside(*given))[1]
    )
    found, seen = segmented(tables, limits, num_results, devices, batches)
    assert devices.waiting_bytes > 1 or max(waiting) == 0
    # Where compiling takes long: one number of rows and two capacities, so two programs.
    assert not devices.few_shapes or seen == [(ROWS // batches, 32), (ROWS // batches, MOST)]
    assert sorted(found) == np.flatnonzero(limits).tolist()
    cache = lookup_model.make_cache(tables, WIDTH, MOST)
    options = {"max_length": MOST, "beam_width": WIDTH, "num_results": num_results, "length_penalty": 0.6}
    whole = jax.device_get(
        jax.jit(functools.partial(beam_search, lookup_model.step, **options))(cache, max_lengths=jnp.asarray(limits))
    )
    for row, hypotheses in found.items():
        capacity = hypotheses.ids.shape[1]
        np.testing.assert_array_equal(hypotheses.ids, whole.ids[row, :, :capacity])
        assert (whole.ids[row, :, capacity:] == 0).all()
        for field in Hypotheses._fields[1:]:
            np.testing.assert_array_equal(getattr(hypotheses, field), getattr(whole, field)[row])


@pytest.mark.parametrize("fails", [0, 1])
def test_an_error_in_a_thread_ends_the_search(fails):
    begun = []

    def search(begin, report):
        for batch in range(begin, 10**6, 2):
            begun.append(batch)
            if batch % 2 == fails and batch > 3:
                raise ValueError(f"batch {batch}")
            report(batch)

    with pytest.raises(ValueError, match=f"batch {4 + fails}"):
        search_in_threads([functools.partial(search, begin) for begin in range(2)], lambda batch: None)
    assert len(begun) < 10**6 // 4


@pytest.mark.slow
def test_without_jit_it_finds_the_same(tables, limits):
    few = np.where(np.arange(ROWS) < 3, np.minimum(limits, 5), 0)
    with jax.disable_jit():
        eager, _ = segmented(tables, few, 1)
    jitted, _ = segmented(tables, few, 1)
    assert eager.keys() == jitted.keys() != set()
    for row, hypotheses in eager.items():
        np.testing.assert_array_equal(hypotheses.ids, jitted[row].ids)
        np.testing.assert_allclose(hypotheses.scores, jitted[row].scores, rtol=1e-5)


def test_rows_of_padding_cost_nothing(tables):
    assert segmented(tables, np.zeros(ROWS, np.int32), 1) == ({}, [])


def test_capacities_that_a_search_comes_to_have():
    assert capacities_of(150) == [(32, 32), (64, 32), (150, 86)]
    assert capacities_of(20) == [(20, 20)]
    assert capacities_of(64) == [(64, 64)]
    assert [count for _, count in capacities_of(306)] == [32, 32, 64, 178]
    assert capacities_of(306, few_shapes=True) == [(32, 32), (306, 274)]


@pytest.mark.slow
def test_the_slots_of_a_transformer_grow_with_their_rows_and_lose_nothing(monkeypatch):
    for name, value in {"SEGMENT": 3, "FIRST_CAPACITY": 3, "MIN_ROWS": 1}.items():
        monkeypatch.setattr(segmented_search, name, value)
    model = build_decoder_only(DecoderOnlyConfig(num_layers=1, d_model=8, d_ff=8, num_heads=2), 17)
    params = random_params(functools.partial(init_decoder_only, model), jax.random.key(0))
    prompts = np.random.default_rng(0).integers(4, 17, (4, 2)).astype(np.int32)
    limits, most = np.array([2, 9, 3, 1], np.int32), 9

    def init_cache(params, prompts, capacity):
        return call(model, params, "init_cache", prompts, beam_width=2, max_length=capacity)

    def step(token_ids, cache):
        logits, cache = call(model, params, "decode_step", token_ids, cache)
        # Hypotheses as long as their limits.
        return logits.at[:, :, lookup_model.EOS_ID].add(-20.0), cache

    search = SegmentedSearch(init_cache, lambda params: step, plain_search(Rules(2, 1, 0.6)))
    found = {}
    batches = [SearchBatch(rows, jnp.asarray(prompts[rows]), limits[rows], most) for rows in np.split(np.arange(4), 2)]

    def report(rows, hypotheses):
        found.update({int(row): (hypotheses.ids[at, 0], hypotheses.scores[at]) for at, row in enumerate(rows)})

    search.search(params, batches, report)

    @jax.jit
    def search_at_once(prompts, limits):
        options = {"max_length": most, "beam_width": 2, "length_penalty": 0.6, "num_results": 1}
        return beam_search(step, init_cache(params, prompts, most), max_lengths=limits, **options)

    whole = search_at_once(prompts, limits)
    assert whole.lengths[:, 0].tolist() == limits.tolist()
    for row, (ids, scores) in found.items():
        np.testing.assert_array_equal(ids, whole.ids[row, 0, : len(ids)])
        np.testing.assert_allclose(scores, whole.scores[row], rtol=1e-5)
    assert sorted(found) == [0, 1, 2, 3]
