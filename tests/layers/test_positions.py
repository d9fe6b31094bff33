"""Positional encodings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ConfigError
from transformer_jax.layers.positions import LearnedPositions, SinusoidalPositions, sinusoid_table


def test_the_papers_formula_entry_by_entry():
    table = sinusoid_table(40, 6)
    for position in range(40):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            assert table[position, 2 * i] == pytest.approx(np.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(np.cos(angle), abs=1e-6)


def test_packed_sentences_start_again():
    encoded = SinusoidalPositions(8).apply({}, jnp.array([[0, 1, 0, 1]]), length=4)
    np.testing.assert_array_equal(encoded[0, :2], encoded[0, 2:])


def test_learned_positions_refuse_what_they_have_no_vector_for():
    positions = LearnedPositions(8, max_positions=4)
    variables = positions.init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32), length=4)
    assert variables["params"]["table"].shape == (4, 8)
    with pytest.raises(ConfigError, match="model.max_positions: 4 .* sequence of 5"):
        positions.apply(variables, jnp.zeros((1, 5), jnp.int32), length=5)
