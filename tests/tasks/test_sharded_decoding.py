"""Decoding on several devices: each searches its own rows, with parameters that were gathered once."""

from functools import partial

import jax
import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.config import DecodingConfig, MeshConfig, from_dict
from transformer_jax.preflight.collectives import collectives_of
from transformer_jax.tasks.translation.objective import TranslationObjective
from transformer_jax.tasks.translation.searches import search_for
from transformer_jax.tasks.translation.translator import init_cache
from transformer_jax.training.sharding import (
    batch_sharding,
    make_mesh,
    put_rows,
    state_shardings,
    whole_over_fsdp,
)

ROWS, ROOM, BEAMS, VOCABULARY = 16, 8, 2, 64
RESULT_BYTES = 4 * ROWS * ROOM


@pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")
def test_every_device_searches_its_own_rows(tmp_path):
    mesh = make_mesh(MeshConfig(data=4, fsdp=2))
    model = TranslationObjective(from_dict(tiny_settings(tmp_path)), VOCABULARY, VOCABULARY, mesh)
    params = model.init_params(jax.random.key(0))
    split = jax.device_put(params, state_shardings(params, mesh))
    gathered = whole_over_fsdp(split, mesh)
    for leaf, original in zip(jax.tree.leaves(gathered), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(leaf, original)

    config = DecodingConfig(beam_width=BEAMS)
    search = search_for(model.model, config, mesh, 1, partial(init_cache, model.model, BEAMS))
    inputs = put_rows(np.full((ROWS, 16), 5, np.int32), mesh)
    shapes = search._shapes(gathered, inputs, ROOM)
    first = search._start(gathered, inputs, np.full(ROWS, ROOM, np.int32), None, shapes=shapes)
    programs = [search._advance.lower(each, first, 1, 0).compile().as_text() for each in (split, gathered)]
    collectives = [collectives_of(text, mesh.size) for text in programs]
    gathered_parameters = [each for each in collectives[0] if each.kind == "all-gather" and each.bytes > RESULT_BYTES]
    assert gathered_parameters
    # How many rows are not done, at every step, and at the end of the segment its results for the host.
    assert {each.kind for each in collectives[1]} == {"all-reduce", "all-gather"}
    assert max(each.bytes for each in collectives[1]) <= RESULT_BYTES
    assert {each.bytes for each in collectives[1] if each.kind == "all-reduce"} == {4}

    second, _ = search._advance(gathered, first, 1, 0)
    third, _ = search._advance(gathered, second, 2, 0)
    fewer = search._resize(third, np.arange(8), shapes=shapes)
    expected = np.array(third.alive.ids)
    joined, is_done = search._join(third, fewer, np.array([-1, 5] + [-1] * (ROWS - 2), np.int32))
    expected[1] = expected[5]
    np.testing.assert_array_equal(joined.alive.ids, expected)
    assert np.flatnonzero(is_done).tolist() == [5]
    for state in (joined, fewer):
        for leaf in jax.tree.leaves(state):
            assert leaf.ndim == 0 or leaf.size == 0 or leaf.sharding.is_equivalent_to(batch_sharding(mesh), leaf.ndim)
    assert search._advance._cache_size() == 1
