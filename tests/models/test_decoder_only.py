"""The decoder-only Transformer: what it may see, what it caches, how large it is."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.array_types import BOS_ID
from transformer_jax.config import ConfigError, DecoderOnlyConfig
from transformer_jax.kit.cosine import CosineSettings
from transformer_jax.kit.gated_linear_attention import GatedLinearAttentionSettings
from transformer_jax.kit.grouped_query import GroupedQuerySettings
from transformer_jax.kit.rope import RopeSettings
from transformer_jax.kit.shaw import ShawSettings
from transformer_jax.kit.sliding_window import SlidingWindowSettings
from transformer_jax.kit.soft_cap import SoftCapSettings
from transformer_jax.kit.t5 import T5Settings
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.models.devices import ANY_DEVICES
from transformer_jax.models.interface import call, shift_right
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.state import count_parameters

VOCABULARY = 19
SMALL = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 4, "max_positions": 16}
VARIANTS = {
    "default": {},
    "post-norm, sinusoids, untied": {"normalization": "post", "positions": "sinusoidal", "tying": "none"},
    "other head sizes, bfloat16": {"d_key": 6, "d_value": 10, "compute_dtype": "bfloat16"},
    "grouped_query, qk_norm, rope": {"attention": "grouped_query,qk_norm", "positions": "rope"},
    "multi_query, cosine, alibi": {"attention": "multi_query,cosine", "positions": "alibi"},
    "sliding_window, soft_cap, t5": {"attention": "sliding_window,soft_cap", "positions": "t5", "tying": "none"},
    "talking_heads, shaw": {"attention": "talking_heads", "positions": "shaw", "normalization": "post"},
    "ssru": {"mixers": "ssru", "positions": "none"},
    "gated linear attention, then attention": {"mixers": "gated_linear_attention attention"},
}
"""Together they have all attentions, positions and mixers of the kit."""
PARTS = {
    "grouped_query": GroupedQuerySettings(2),
    "rope": RopeSettings(base=50.0, share=0.5),
    "cosine": CosineSettings(),
    "sliding_window": SlidingWindowSettings(3),
    "soft_cap": SoftCapSettings(0.5),
    "t5": T5Settings(buckets=4, max_distance=4),
    "shaw": ShawSettings(2),
    "gated_linear_attention": GatedLinearAttentionSettings(chunk=2),
}
TOKENS = Tokens.from_ids(np.array([[5, 6, 2, 0, 0, 0], [8, 9, 10, 11, 12, 2]], np.int32))
PACKED = Tokens(
    np.array([[5, 6, 2, 8, 9, 10, 11, 12, 2, 0]], np.int32),
    np.array([[1, 1, 1, 2, 2, 2, 2, 2, 2, 0]], np.int32),
    np.array([[0, 1, 2, 0, 1, 2, 3, 4, 5, 0]], np.int32),
)


def make(**settings):
    model = build_decoder_only(DecoderOnlyConfig(**(SMALL | settings)), VOCABULARY, parts=PARTS)
    params = init_decoder_only(model, jax.random.key(0))
    # Parameters of parts that begin as zeros, ones or the identity would hide what they do.
    noise = jax.random.split(jax.random.key(1), len(jax.tree.leaves(params)))
    noise = jax.tree.unflatten(jax.tree.structure(params), list(noise))
    return model, jax.tree.map(lambda leaf, key: leaf + 0.1 * jax.random.normal(key, leaf.shape), params, noise)


@pytest.fixture(params=VARIANTS, scope="module")
def variant_settings(request):
    return VARIANTS[request.param]


@pytest.fixture(scope="module")
def variant(variant_settings):
    return make(**variant_settings)


def logits_of(model, params, tokens):
    return jax.jit(partial(model.apply, train=False))({"params": params}, tokens)


def test_one_step_at_a_time_equals_the_full_forward_pass(variant):
    model, params = variant
    full = logits_of(model, params, TOKENS)
    cache = call(model, params, "init_cache", jnp.zeros((2, 0), jnp.int32), beam_width=3, max_length=7)
    step = jax.jit(partial(call, model, params, "decode_step"))
    inputs = shift_right(TOKENS)
    for position in range(TOKENS.ids.shape[1]):
        logits, cache = step(jnp.repeat(inputs[:, position, None], 3, axis=1), cache)
        real = TOKENS.segments[:, position] > 0
        for beam in range(3):
            np.testing.assert_allclose(logits[real, beam], full[real, position], atol=2e-4)


def test_steps_after_a_prefilled_prompt_equal_the_full_forward_pass(variant):
    """Prompts of 1 and 4 tokens, BOS included, in one batch."""
    model, params = variant
    full = logits_of(model, params, TOKENS)
    prompts = jnp.array([[0, 0, 0, BOS_ID], [BOS_ID, 8, 9, 10]])
    prefill = jax.jit(partial(call, model, params, "init_cache", beam_width=2, max_length=3))
    cache = prefill(prompts)
    step = jax.jit(partial(call, model, params, "decode_step"))
    for offset in range(2):
        token_ids = jnp.array([TOKENS.ids[0, offset], TOKENS.ids[1, 3 + offset]])
        logits, cache = step(jnp.repeat(token_ids[:, None], 2, axis=1), cache)
        for beam in range(2):
            np.testing.assert_allclose(logits[0, beam], full[0, 1 + offset], atol=2e-4)
            np.testing.assert_allclose(logits[1, beam], full[1, 4 + offset], atol=2e-4)


def test_a_token_depends_on_those_before_it_and_on_no_other(variant_settings):
    """By gradient: of a logit at each position with respect to each embedded input, BOS being the first."""
    config = DecoderOnlyConfig(**(SMALL | variant_settings | {"compute_dtype": "float32"}))
    params = make(**variant_settings)[1]
    tokens = Tokens(*(leaf[1:] for leaf in TOKENS))

    @jax.jit
    def logits_of(embedded):
        model = build_decoder_only(
            config, VOCABULARY, ANY_DEVICES._replace(lookup=lambda table, ids: embedded), parts=PARTS
        )
        return model.apply({"params": params}, tokens, train=False)[0, :, 7]

    embedded = jax.random.normal(jax.random.key(1), (1, 6, 16))
    reads = np.abs(jax.jit(jax.jacrev(logits_of))(embedded)).max(axis=(1, 3))
    distance = np.arange(6)[:, None] - np.arange(6)[None, :]
    # Two layers of a window of 3 positions.
    farthest = 4 if "sliding_window" in config.attention else 5
    np.testing.assert_array_equal(reads > 1e-7, (distance >= 0) & (distance <= farthest))
    assert not reads[np.triu_indices(6, 1)].any()


def test_packed_documents_and_padding_do_not_see_each_other(variant):
    model, params = variant
    packed = logits_of(model, params, PACKED)[0]
    apart = logits_of(model, params, TOKENS)
    np.testing.assert_allclose(packed[:3], apart[0, :3], atol=2e-4)
    np.testing.assert_allclose(packed[3:9], apart[1], atol=2e-4)


@pytest.mark.parametrize(
    "name", [name for name in VARIANTS if name in ("default", "ssru") or "attention" in VARIANTS[name]]
)
def test_scanned_and_rematerialized_layers_compute_the_same(name):
    def gradient(**settings):
        model, params = make(dropout=0.0, embedding_dropout=0.0, **VARIANTS[name], **settings)

        def loss(params):
            return model.apply({"params": params}, TOKENS, train=True, rngs={"dropout": jax.random.key(0)}).var()

        return jax.jit(jax.grad(loss))(params)

    again = gradient(scan_layers=True, rematerialize="full")
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), gradient(), again)


def test_factors_multiply_to_the_logits():
    model, params = make()
    hidden, matrix = jax.jit(partial(call, model, params, "factors", train=False))(TOKENS)
    np.testing.assert_allclose(hidden @ matrix.T, logits_of(model, params, TOKENS), atol=1e-5)


def test_as_many_parameters_as_gpt_2_small_without_its_biases():
    """Radford et al. 2019 (124,439,808) less the biases of the attention projections, which this attention has not."""
    config = DecoderOnlyConfig(num_layers=12, d_model=768, d_ff=3072, num_heads=12)
    shapes = jax.eval_shape(partial(init_decoder_only, build_decoder_only(config, 50_257)), jax.random.key(0))
    assert count_parameters(shapes) == 124_439_808 - 12 * 4 * 768


def test_learned_positions_that_do_not_reach_are_refused():
    model, params = make(max_positions=4)
    with pytest.raises(ConfigError, match="max_positions: 4 learned positions do not reach a sequence of 6"):
        logits_of(model, params, TOKENS)
