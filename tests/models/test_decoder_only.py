"""The decoder-only Transformer: what it may see, what it caches, how large it is."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jitted_model import JittedModel, random_params

from transformer_jax.array_types import BOS_ID
from transformer_jax.config import DecoderOnlyConfig
from transformer_jax.kit.soft_cap import SoftCappedSettings
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.models.decoder_only import prompt_positions
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.state import count_parameters

VOCABULARY = 19
SMALL = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 4, "max_positions": 16}
CAPPED = "post-norm, sinusoids, untied, capped"
VARIANTS = {
    "default": {},
    CAPPED: {"normalization": "post", "positions": "sinusoidal", "tying": "none", "projection": "soft_capped"},
    "other head sizes, bfloat16": {"d_key": 6, "d_value": 10, "compute_dtype": "bfloat16"},
}
PARTS = {"soft_capped": SoftCappedSettings(2.0)}
TOKENS = Tokens.from_ids(np.array([[5, 6, 2, 0, 0, 0, 0, 0], [8, 9, 10, 11, 12, 13, 14, 2]], np.int32))
PACKED = Tokens(
    np.array([[5, 6, 2, 8, 9, 10, 11, 12, 13, 14, 2, 0]], np.int32),
    np.array([[1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 0]], np.int32),
    np.array([[0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 0]], np.int32),
)


def make(**settings):
    model = build_decoder_only(DecoderOnlyConfig(**(SMALL | settings)), VOCABULARY, parts=PARTS)
    return JittedModel(model), {"params": random_params(partial(init_decoder_only, model), jax.random.key(0))}


@cache
def made(name):
    return make(**VARIANTS[name])


@pytest.fixture(params=VARIANTS, scope="module")
def name(request):
    return request.param


@pytest.fixture(scope="module")
def full(name):
    """Logits of both rows, and of the second with each of its tokens but the last changed."""
    model, variables = made(name)
    changed = np.where(np.eye(7, 8, dtype=bool), 15, TOKENS.ids[1]).astype(np.int32)
    return np.asarray(model.apply(variables, Tokens.from_ids(np.concatenate([TOKENS.ids, changed])), train=False))


def assert_steps_equal(name, full, prompts, taken):
    """``taken`` are the tokens of each row in its prompt, without BOS."""
    model, variables = made(name)
    cache = model.apply(variables, prompts, beam_width=3, max_length=4, method="init_cache")
    for offset in range(4):
        token_ids = jnp.array([BOS_ID if at + offset < 0 else TOKENS.ids[1, at + offset] for at in taken])
        logits, cache = model.apply(variables, jnp.repeat(token_ids[:, None], 3, axis=1), cache, method="decode_step")
        for row, at in enumerate(taken):
            for beam in range(3):
                np.testing.assert_allclose(logits[row, beam], full[1, at + offset + 1], atol=2e-4)


def test_steps_after_a_prefilled_prompt_equal_the_full_forward_pass(name, full):
    """Prompts of 1 and 4 tokens, BOS included, in one batch."""
    assert_steps_equal(name, full, jnp.array([[0, 0, 0, BOS_ID], [BOS_ID, 8, 9, 10]]), (0, 3))


@pytest.mark.parametrize("name", ["default"], scope="module")
def test_steps_without_a_prompt_equal_the_full_forward_pass(name, full):
    assert_steps_equal(name, full, jnp.zeros((1, 0), jnp.int32), (-1,))


def test_a_token_depends_on_those_before_it_and_on_no_other(full):
    reads = np.abs(full[2:] - full[1]).max(-1) > 1e-7
    np.testing.assert_array_equal(reads, np.triu(np.ones((7, 8), bool), 1))


def test_packed_documents_and_padding_do_not_see_each_other(name, full):
    model, variables = made(name)
    packed = model.apply(variables, PACKED, train=False)[0]
    np.testing.assert_allclose(packed[:3], full[0, :3], atol=2e-4)
    np.testing.assert_allclose(packed[3:11], full[1], atol=2e-4)


@pytest.mark.checked
def test_an_array_of_another_rank_or_type_is_refused_where_annotations_are_checked():
    for wrong in (jnp.ones((2, 3, 1), bool), jnp.ones((2, 3))):
        with pytest.raises(jaxtyping.TypeCheckError):
            prompt_positions(wrong)


@pytest.mark.parametrize(("name", "mod"), [("default", lambda z: z), (CAPPED, lambda z: 2 * np.tanh(z / 2))])
def test_factors_multiply_to_the_logits(name, mod):
    model, variables = made(name)
    hidden, matrix, _ = model.apply(variables, TOKENS, train=False, method="factors")
    np.testing.assert_allclose(mod(hidden @ matrix.T), model.apply(variables, TOKENS, train=False), atol=1e-5)


def test_as_many_parameters_as_gpt_2_small_without_its_biases():
    """Radford et al. 2019 (124,439,808) less the biases of the attention projections, which this attention has not."""
    config = DecoderOnlyConfig(num_layers=12, d_model=768, d_ff=3072, num_heads=12)
    shapes = jax.eval_shape(partial(init_decoder_only, build_decoder_only(config, 50_257)), jax.random.key(0))
    assert count_parameters(shapes) == 124_439_808 - 12 * 4 * 768
