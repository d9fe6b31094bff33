"""Decoding with parameters that are split over devices."""

from functools import partial

import jax
import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.config import MeshConfig, from_dict
from transformer_jax.decoding.beam_search import Rules, continue_search, start_search
from transformer_jax.models.interface import call
from transformer_jax.tasks.translation.objective import TranslationObjective
from transformer_jax.tasks.translation.translator import init_cache
from transformer_jax.training.sharding import make_mesh, put_rows, state_shardings, whole_over_fsdp

ROWS, ROOM, RULES = 8, 8, Rules(2, 1, 0.6)


@pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")
def test_no_step_gathers_parameters(tmp_path):
    mesh = make_mesh(MeshConfig(data=4, fsdp=2))
    model = TranslationObjective(from_dict(tiny_settings(tmp_path)), 64, 64, mesh)
    params = model.init_params(jax.random.key(0))
    split = jax.device_put(params, state_shardings(params, mesh))
    ids, limits = np.full((ROWS, 16), 5, np.int32), np.full(ROWS, ROOM, np.int32)

    def search(params, ids, limits):
        state = start_search(init_cache(model.model, 2, params, ids, ROOM), limits, ROOM, RULES)
        step = partial(call, model.model, params, "decode_step")
        return continue_search(step, state, ROOM, RULES).finished

    def compiled(params):
        return jax.jit(search).lower(params, *put_rows((ids, limits), mesh)).compile()

    gathered = whole_over_fsdp(split, mesh)
    lines = [compiled(each).as_text().splitlines() for each in (split, gathered)]
    # The compiler gathers the rows of every top_k too, a few numbers a sentence, wherever the parameters are.
    counts = [sum(" all-gather(" in line and "/top_k" not in line for line in program) for program in lines]
    assert counts[0] > 0 and counts[1] == 0
    for leaf, original in zip(jax.tree.leaves(gathered), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(leaf, original)
