"""Dropout: the rate, the scale, and bits that are random enough."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.layers.dropout import Dropout, dropout_mask, hashed_bits


def bits_of(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    start = (0,) * len(shape)
    return np.asarray(jitted_bits(dropout_mask(0.5, jax.random.key(seed)).seeds, shape, start, shape))


jitted_bits = jax.jit(hashed_bits, static_argnums=(1, 2, 3))
apply = jax.jit(lambda mask, inputs: mask(inputs))


@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_the_share_that_is_dropped_and_the_scale_of_the_rest(rate):
    outputs = np.asarray(apply(dropout_mask(rate, jax.random.key(0)), jnp.ones((400, 500))))
    dropped = (outputs == 0).mean()
    assert abs(dropped - rate) < 5 * (rate * (1 - rate) / outputs.size) ** 0.5
    np.testing.assert_allclose(outputs[outputs != 0], 1 / (1 - rate), rtol=1e-6)


def test_every_bit_is_fair_and_independent_of_its_neighbors():
    bits = bits_of(1, (512, 512))
    planes = np.unpackbits(bits.view(np.uint8).reshape(512, 512, 4), axis=-1).astype(np.float64) - 0.5
    five_sigmas = 5 * 0.5 / 512
    assert np.abs(planes.mean((0, 1))).max() < five_sigmas
    for shifted in (planes[1:] * planes[:-1], planes[:, 1:] * planes[:, :-1]):
        assert np.abs(4 * shifted.mean((0, 1))).max() < 5 / 511


def test_bits_do_not_repeat_beyond_four_billion_entries():
    seeds, whole = dropout_mask(0.5, jax.random.key(0)).seeds, (6, 2**30)
    bits = jax.jit(lambda row: hashed_bits(seeds, (1, 64), [row, 7], whole))
    rows = np.concatenate([bits(row) for row in range(6)])
    assert len(np.unique(rows)) == rows.size


def test_the_gradient_passes_what_the_value_passed():
    mask, ones = dropout_mask(0.3, jax.random.key(5)), jnp.ones((40, 30), jnp.bfloat16)

    def summed(inputs):
        dropped = mask(inputs)
        return dropped.astype(jnp.float32).sum(), dropped

    gradient, dropped = jax.jit(jax.grad(summed, has_aux=True))(ones)
    assert gradient.dtype == dropped.dtype == jnp.bfloat16
    np.testing.assert_array_equal(gradient, dropped)


def test_nothing_happens_outside_training():
    inputs = jnp.ones((3, 3))
    np.testing.assert_array_equal(Dropout(0.5).apply({}, inputs, train=False), inputs)


def test_a_part_is_dropped_as_in_the_whole():
    mask, whole = dropout_mask(0.3, jax.random.key(4)), jnp.arange(1.0, 241.0).reshape(4, 6, 10)
    part = jax.jit(lambda whole, place: mask.block(whole[1:3, 2:5, 4:], [1, place, 4], whole.shape))(whole, 2)
    np.testing.assert_array_equal(part, np.asarray(apply(mask, whole))[1:3, 2:5, 4:])


@pytest.mark.parametrize("rate", [0.3, 1 - 2.0**-24])
def test_a_traced_rate_drops_what_the_constant_drops(rate):
    ones, key = jnp.ones((64, 64)), jax.random.key(5)
    traced = jax.jit(lambda rate: dropout_mask(rate, key)(ones))(jnp.float32(rate))
    np.testing.assert_allclose(traced, jax.jit(lambda: dropout_mask(rate, key)(ones))(), rtol=1e-6)
