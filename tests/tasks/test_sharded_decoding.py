"""Decoding on several devices, which search their rows with parameters gathered once."""

import jax
import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.config import DecodingConfig, MeshConfig, from_dict
from transformer_jax.decoding.segmented_search import SearchBatch
from transformer_jax.models import devices
from transformer_jax.models.interface import call
from transformer_jax.precision import POLICIES_ON_CPU
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.tasks.translation.translator import init_cache, search_for
from transformer_jax.tools.preflight.collectives import collectives_of
from transformer_jax.training.parameters import named_leaves
from transformer_jax.training.sharding import (
    batch_sharding,
    make_mesh,
    operands_rounded,
    put_rows,
    state_shardings,
    unshard_fsdp,
)

ROWS, CAPACITY, BEAMS, VOCABULARY = 16, 8, 2, 64
RESULT_BYTES = 4 * ROWS * CAPACITY


@pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")
def test_every_device_searches_its_own_rows(tmp_path):
    mesh = make_mesh(MeshConfig(data=4, fsdp=2))
    model = TranslationObjective(from_dict(tiny_settings(tmp_path)), VOCABULARY, VOCABULARY, mesh)
    params = jax.jit(model.init_params)(jax.random.key(0))
    split = jax.device_put(params, state_shardings(params, mesh))
    gathered = unshard_fsdp(split, mesh, "float32")
    for leaf, original in zip(jax.tree.leaves(gathered), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(leaf, original)

    config = DecodingConfig(beam_width=BEAMS)
    search = search_for(lambda: model.model, config, mesh, 1)
    inputs = put_rows(np.full((ROWS, 16), 5, np.int32), mesh)
    batch = SearchBatch(np.arange(ROWS), inputs, np.full(ROWS, CAPACITY, np.int32), CAPACITY)
    layout = search._layout(gathered, batch, CAPACITY)
    static = {"static": lambda: layout.structure}
    first = search._start(gathered, inputs, batch.limits, None, static=lambda: layout)
    run_segment, count = search._run_segment.compiled, len(first)
    lowered = [run_segment.lower(layout.structure, item, first, 1, ROWS) for item in (split, gathered)]
    programs = [item.compile().as_text() for item in lowered]
    collectives = [collectives_of(text, mesh.size) for text in programs]
    gathers = [collective for collective in collectives[0] if collective.kind == "all-gather"]
    assert any(collective.bytes > RESULT_BYTES for collective in gathers)
    # How many rows are not done, at every step, and at the end of the segment its results for the
    # host.
    assert {collective.kind for collective in collectives[1]} == {"all-reduce", "all-gather"}
    assert max(collective.bytes for collective in collectives[1]) <= RESULT_BYTES
    assert {collective.bytes for collective in collectives[1] if collective.kind == "all-reduce"} == {4}

    second = search._run_segment(gathered, first, 1, ROWS, **static)[:count]
    third = search._run_segment(gathered, second, 2, ROWS, **static)[:count]
    fewer = search._resize(third, np.arange(8), static=lambda: layout)
    expected = np.array(jax.tree.unflatten(layout.structure, third).alive.ids)
    both = search._join(third, fewer, np.array([-1, 5] + [-1] * (ROWS - 2), np.int32), **static)
    joined, others = (jax.tree.unflatten(layout.structure, leaves) for leaves in (both[:count], both[count:]))
    expected[1] = expected[5]
    np.testing.assert_array_equal(joined.alive.ids, expected)
    assert np.flatnonzero(others.is_done).tolist() == [5]
    for leaf in both:
        assert leaf.ndim == 0 or leaf.size == 0 or leaf.sharding.is_equivalent_to(batch_sharding(mesh), leaf.ndim)
    assert run_segment._cache_size() == 1


SMALL_RNN = {
    "kind": "rnn",
    "cell": "gru",
    "d_embedding": 8,
    "d_hidden": 8,
    "d_attention": 8,
    "compute_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    "model",
    [
        {"tying": "none", "feed_forward": "swiglu", "attention": "latent"},
        SMALL_RNN | {"wiring": "bahdanau", "attention": "location_sensitive", "location_filters": 2},
    ],
)
@pytest.mark.slow
def test_a_model_computes_the_same_with_operands_that_were_rounded_before_they_were_sent(tmp_path, model, monkeypatch):
    # As on accelerators.
    monkeypatch.setattr(devices, "EVALUATION_ON_CPU", POLICIES_ON_CPU)
    settings = tiny_settings(tmp_path)
    settings["model"] = model if "kind" in model else settings["model"] | model | {"compute_dtype": "bfloat16"}
    settings["decoding"] |= {"compute_dtype": "bfloat16"}
    mesh = make_mesh(MeshConfig(data=1), jax.devices()[:1])
    objective = TranslationObjective(from_dict(settings), VOCABULARY, VOCABULARY, mesh)
    params = jax.jit(objective.init_params)(jax.random.key(0))
    rounded = operands_rounded(params, "bfloat16")
    types = {str(leaf.dtype) for leaf in jax.tree.leaves(rounded)}
    assert types == {"bfloat16", "float32"}
    kernels = [
        str(leaf.dtype) for path, leaf in named_leaves(rounded).items() if path.endswith("attention/latent_kernel")
    ]
    assert {*kernels} == ({"bfloat16"} if "kind" not in model else set())

    @jax.jit
    def logits(params, ids):
        cache = init_cache(objective.model, BEAMS, params, ids, CAPACITY)
        return call(objective.model, params, "decode_step", ids[:, :BEAMS], cache)[0]

    ids = np.arange(4, 20, dtype=np.int32).reshape(2, 8)
    np.testing.assert_array_equal(*(logits(item, ids) for item in (params, rounded)))
