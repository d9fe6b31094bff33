"""Scores of random queries and keys: variance, entropy, gradient."""

import jax
import numpy as np
import pytest

from transformer_jax.tools.pictures.scaling import scaling_numbers, softmax_jacobian_norm


def test_the_variance_of_a_score_is_d_k_and_scaled_it_is_one():
    numbers = scaling_numbers((1, 16, 256), queries=500, keys=32)
    np.testing.assert_allclose(numbers.variance[0], numbers.key_sizes, rtol=0.05)
    np.testing.assert_allclose(numbers.variance[1], 1.0, rtol=0.05)


def test_unscaled_the_softmax_of_wide_keys_is_a_choice_with_little_gradient():
    numbers = scaling_numbers((4, 64, 1024), queries=500, keys=32)
    assert (np.diff(numbers.entropy[0]) < -0.3).all()
    assert numbers.gradient[0, 2] < 0.5 * numbers.gradient[1, 2]
    assert np.ptp(numbers.entropy[1]) < 0.1
    assert np.ptp(numbers.gradient[1]) < 0.02


def test_the_norm_of_the_jacobian_is_that_of_automatic_differentiation():
    scores = np.array([0.3, -1.0, 2.0, 0.0])
    jacobian = jax.jacobian(jax.nn.softmax)(scores)
    assert softmax_jacobian_norm(np.asarray(jax.nn.softmax(scores))) == pytest.approx(
        np.linalg.norm(jacobian), rel=1e-5
    )
