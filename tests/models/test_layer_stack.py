"""However a stack is run, it computes the same from the same parameters."""

from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.config import TransformerConfig
from transformer_jax.layers.dropout import Dropout
from transformer_jax.models.build import build_model
from transformer_jax.models.inspection import attention_maps
from transformer_jax.models.interface import init_params
from transformer_jax.models.layer_stack import Unrolled, stack_of
from transformer_jax.sequence_types import Tokens

STACKS = [*(pytest.param(item, marks=pytest.mark.slow) for item in ((False, "full"), (True, "none")))]
STACKS += [(True, "keep_projections")]
SMALL = {"d_model": 16, "d_ff": 32, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 1}
SOURCE = Tokens.from_ids(np.array([[5, 6, 7, 2, 0, 0], [8, 9, 10, 11, 12, 2]], np.int32))
TARGET = Tokens.from_ids(np.array([[5, 6, 2, 0, 0], [8, 9, 10, 11, 2]], np.int32))


def model_of(scan: bool, rematerialize: str, **settings):
    config = TransformerConfig(**(SMALL | {"scan_layers": scan, "rematerialize": rematerialize} | settings))
    return build_model(config, 19, 19)


def square(model, params):
    return jnp.sum(model.apply({"params": params}, SOURCE, TARGET, train=False) ** 2)


@pytest.fixture(scope="module")
def unrolled():
    model = model_of(False, "none")
    params = random_params(partial(init_params, model), jax.random.key(0))
    return params, jax.jit(jax.value_and_grad(partial(square, model)))(params)


@pytest.mark.parametrize("stack", STACKS)
def test_same_parameters_same_value_same_gradient(stack, unrolled):
    model, (params, (expected, expected_gradient)) = model_of(*stack), unrolled
    shapes = jax.eval_shape(partial(init_params, model), jax.random.key(0))
    assert jax.tree.structure(shapes) == jax.tree.structure(params)
    value, gradient = jax.jit(jax.value_and_grad(partial(square, model)))(params)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * float(jnp.abs(other).max()))


class Dropping(nn.Module):
    @nn.compact
    def __call__(self, hidden, *, train):
        scale = self.param("scale", nn.initializers.ones, ())
        return hidden + scale * Dropout(0.5)(jnp.ones_like(hidden), train=train)


class TwoDropping(nn.Module):
    stack: Unrolled

    def setup(self):
        self.layers = [Dropping(), Dropping()]

    def __call__(self, hidden, *, train):
        return self.stack(self.layers, hidden, train=train)


@pytest.mark.parametrize("stack", STACKS)
def test_dropout_differs_from_key_to_key_and_from_layer_to_layer(stack):
    model, hidden = TwoDropping(stack_of(*stack)), jnp.zeros((1, 8, 32))
    variables = model.init(jax.random.key(0), hidden, train=False)
    one, again, other = (
        np.asarray(model.apply(variables, hidden, train=True, rngs={"dropout": jax.random.key(seed)}))
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    # Each layer adds 2 or 0: 2 in all where one of them dropped and the other did not.
    assert set(np.unique(one)) == {0.0, 2.0, 4.0}


def test_weights_can_be_looked_at_whatever_the_stack(unrolled):
    maps, expected = (
        jax.jit(partial(attention_maps, model_of(*item)))(unrolled[0], SOURCE, TARGET)
        for item in ((True, "full"), (False, "none"))
    )
    assert maps.keys() == expected.keys()
    for name, weights in maps.items():
        np.testing.assert_allclose(weights, expected[name], atol=1e-6)


def products_in_program(model, depth: int) -> int:
    params = jax.eval_shape(lambda: init_params(model(num_encoder_layers=depth), jax.random.key(0)))
    return jax.jit(partial(square, model(num_encoder_layers=depth))).lower(params).as_text().count("dot_general")


def test_a_scanned_program_does_not_grow_with_depth():
    two, three = (products_in_program(partial(model_of, True, "none"), depth) for depth in (2, 3))
    assert two == three > 0


@cache
def params_of_deep():
    model = model_of(False, "none", num_encoder_layers=3, num_decoder_layers=1)
    return jax.eval_shape(partial(init_params, model), jax.random.key(0))


def kept_numbers(stack: tuple[bool, str]) -> int:
    """Hyperparameters that the forward pass of a deep stack leaves for the backward pass."""
    model = model_of(*stack, num_encoder_layers=3, num_decoder_layers=1)
    params = params_of_deep()
    pullback = jax.eval_shape(lambda params: jax.vjp(partial(square, model), params)[1], params)
    return sum(leaf.size for leaf in jax.tree.leaves(pullback))


@pytest.mark.parametrize("scan", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_is_computed_again_is_not_kept(scan):
    kept = {name: kept_numbers((scan, name)) for name in ("none", "keep_products", "keep_projections", "full")}
    assert kept["full"] < kept["keep_projections"] <= kept["keep_products"] < kept["none"]
