"""The decoder-only Transformer: its logits as two factors, and how large it is."""

from functools import partial

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jitted_model import JittedModel, random_params

from transformer_jax.config.language_model import DecoderOnlyConfig
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
}
PARTS = {"soft_capped": SoftCappedSettings(2.0)}
TOKENS = Tokens.from_ids(np.array([[5, 6, 2, 0, 0, 0, 0, 0], [8, 9, 10, 11, 12, 13, 14, 2]], np.int32))


def make(**settings):
    model = build_decoder_only(DecoderOnlyConfig(**(SMALL | settings)), VOCABULARY, parts=PARTS)
    return JittedModel(model), {"params": random_params(partial(init_decoder_only, model), jax.random.key(0))}


@pytest.mark.checked
def test_an_array_of_another_rank_or_type_is_refused_where_annotations_are_checked():
    for wrong in (jnp.ones((2, 3, 1), bool), jnp.ones((2, 3))):
        with pytest.raises(jaxtyping.TypeCheckError):
            prompt_positions(wrong)


@pytest.mark.parametrize(("name", "mod"), [("default", lambda z: z), (CAPPED, lambda z: 2 * np.tanh(z / 2))])
def test_factors_multiply_to_the_logits(name, mod):
    model, variables = make(**VARIANTS[name])
    hidden, matrix, _ = model.apply(variables, TOKENS, train=False, method="factors")
    np.testing.assert_allclose(mod(hidden @ matrix.T), model.apply(variables, TOKENS, train=False), atol=1e-5)


def test_as_many_parameters_as_gpt_2_small_without_its_biases():
    """Radford et al. 2019 (124,439,808) less the biases of the attention projections."""
    config = DecoderOnlyConfig(num_layers=12, d_model=768, d_ff=3072, num_heads=12)
    shapes = jax.eval_shape(partial(init_decoder_only, build_decoder_only(config, 50_257)), jax.random.key(0))
    assert count_parameters(shapes) == 124_439_808 - 12 * 4 * 768
