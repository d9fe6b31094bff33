"""Segmented search finds what the search in one piece finds, whatever leaves the batch and however arrays grow."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.decoding import Hypotheses, beam_search
from transformer_jax.decoding.beam_search import Rules
from transformer_jax.decoding.segmented_search import SegmentedSearch, rooms_of

WIDTH, ROWS, MOST = 3, 32, 75


@pytest.fixture(scope="module")
def tables(lookup_model):
    """Most sentences end within few tokens, some go on to their limits."""
    tables = lookup_model.random_tables(ROWS, 9, seed=3, eos_bias=2.0)
    tables[::9, :, lookup_model.EOS_ID] -= 12.0
    return tables


@pytest.fixture(scope="module")
def limits():
    return np.array([MOST - row if row % 2 else (0, 1, 40, 64)[row // 2 % 4] for row in range(ROWS)], np.int32)


def segmented(lookup_model, tables, limits, num_results: int, row_multiple: int = 1):
    """The hypotheses by row, and the numbers of rows and the rooms that were searched with."""
    seen = []

    def step(token_ids, cache):
        seen.append((len(token_ids), cache.per_beam["history"].shape[2] - 1))
        return lookup_model.step(token_ids, cache)

    search = SegmentedSearch(
        lambda params, inputs, room: lookup_model.make_cache(inputs, WIDTH, room),
        lambda params: step,
        Rules(WIDTH, num_results, 0.6),
        row_multiple=row_multiple,
    )
    found = {}
    for rows, hypotheses in search.search({}, jnp.asarray(tables), limits, MOST):
        for place, row in enumerate(rows):
            assert row not in found
            found[int(row)] = jax.tree.map(lambda leaf, place=place: leaf[place], hypotheses)
    return found, list(dict.fromkeys(seen))


@pytest.mark.parametrize("num_results", [1, WIDTH])
def test_it_finds_what_one_search_finds(lookup_model, tables, limits, num_results):
    found, seen = segmented(lookup_model, tables, limits, num_results)
    assert sorted(found) == np.flatnonzero(limits).tolist()
    cache = lookup_model.make_cache(tables, WIDTH, MOST)
    options = {"max_length": MOST, "beam_width": WIDTH, "num_results": num_results, "length_penalty": 0.6}
    whole = jax.device_get(
        jax.jit(functools.partial(beam_search, lookup_model.step, **options))(cache, max_lengths=jnp.asarray(limits))
    )
    for row, hypotheses in found.items():
        room = hypotheses.ids.shape[1]
        np.testing.assert_array_equal(hypotheses.ids, whole.ids[row, :, :room])
        assert (whole.ids[row, :, room:] == 0).all()
        for field in Hypotheses._fields[1:]:
            np.testing.assert_array_equal(getattr(hypotheses, field), getattr(whole, field)[row])
    rows, rooms = zip(*seen, strict=True)
    assert rows[0] == ROWS
    assert rows[-1] == ROWS // 4
    assert rooms[0] == 32
    assert rooms[-1] == MOST
    assert list(dict.fromkeys(rooms)) == [room for room, _ in rooms_of(MOST)]


def test_rows_stay_divisible_over_the_devices(lookup_model, tables, limits):
    _, seen = segmented(lookup_model, tables, limits, 1, row_multiple=16)
    assert {rows for rows, _ in seen} == {ROWS}


def test_rows_of_padding_cost_nothing(lookup_model, tables):
    found, seen = segmented(lookup_model, tables, np.zeros(ROWS, np.int32), 1)
    assert found == {}
    assert seen == []


def test_rooms_as_a_search_comes_to_have_them():
    assert rooms_of(150) == [(32, 32), (64, 32), (150, 86)]
    assert rooms_of(20) == [(20, 20)]
    assert rooms_of(64) == [(64, 64)]
    assert [count for _, count in rooms_of(306)] == [32, 32, 64, 178]
