import jax.numpy as jnp
import numpy as np

from transformer_jax.decoding import length_penalty_divisor


def test_literal_values():
    lengths = jnp.array([[1, 7], [13, 25]])
    np.testing.assert_allclose(length_penalty_divisor(lengths, 1.0), [[1, 2], [3, 5]], rtol=1e-6)
    np.testing.assert_allclose(length_penalty_divisor(lengths, 0.5), np.sqrt([[1, 2], [3, 5]]), rtol=1e-6)
    np.testing.assert_array_equal(length_penalty_divisor(lengths, 0.0), np.ones((2, 2)))
