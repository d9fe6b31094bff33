"""The KV cache of a sliding window holds one window: decoding with it, after long and short prompts, equals the full pass."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import DecoderOnlyConfig
from transformer_jax.kit.grouped_query import GroupedQuerySettings
from transformer_jax.kit.rope import RopeSettings
from transformer_jax.kit.sliding_window import SlidingWindowSettings
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.sequence_types import Tokens

CONFIG = DecoderOnlyConfig(
    num_layers=2, d_model=16, d_ff=16, num_heads=4, attention="grouped_query,sliding_window", positions="rope"
)
PARTS = {"sliding_window": SlidingWindowSettings(3), "grouped_query": GroupedQuerySettings(2), "rope": RopeSettings()}
NEW, BEAMS = 8, 2


@pytest.mark.parametrize("width", [0, 9])
def test_a_ring_of_cache_slots_equals_the_full_pass(width):
    model = build_decoder_only(CONFIG, 19, parts=PARTS)
    params = {"params": init_decoder_only(model, jax.random.key(0))}
    ids = np.random.default_rng(0).integers(4, 19, (BEAMS, width + NEW)).astype(np.int32)
    ids[1, : max(width - 1, 0)] = ids[0, : max(width - 1, 0)]
    full = jax.jit(partial(model.apply, train=False))(params, Tokens.from_ids(ids))
    inputs = np.concatenate([np.ones((BEAMS, 1), np.int32), ids], axis=1)
    # The same prompt twice, the second time with PAD on its left.
    prompt = np.stack([np.pad(inputs[0, :width], (2, 0))] * 2) if width else inputs[:, :0]
    cache = model.apply(params, prompt, beam_width=BEAMS, max_length=NEW, method="init_cache")
    assert {leaf.shape for leaf in jax.tree.leaves(cache.kv_cache)} == {(2, 2, 4, 6), (2, 2, 6, 4)}
    step = jax.jit(partial(model.apply, method="decode_step"))
    for position in range(width, width + NEW):
        logits, cache = step(params, jnp.tile(inputs[:, position], (2, 1)), cache)
        np.testing.assert_allclose(logits[1], full[:, position], atol=1e-4)
