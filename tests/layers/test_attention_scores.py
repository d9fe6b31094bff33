"""Each score against its equation, written with loops; what every one of them has in common."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.layers import attention_scores as scores

BATCH, QUERIES, PLACES, WIDTH = 2, 3, 5, 4
MASK = jnp.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
LENGTHS = jnp.array([5, 3])


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


QUERY, KEY = normal(0, BATCH, QUERIES, WIDTH), normal(1, BATCH, PLACES, WIDTH)
VECTOR, BIAS, KERNEL, WIDE_KERNEL = normal(2, WIDTH), normal(3, WIDTH), normal(4, WIDTH, WIDTH), normal(5, 2 * WIDTH, 6)
FEATURES, LONG_VECTOR, GAIN = normal(6, BATCH, QUERIES, PLACES, WIDTH), normal(7, 6), jnp.float32(1.7)

# Found by the function; the equation for one query q and one key k, b and f being the bias and the features of the place.
SCORES = {
    "dot": (scores.dot_scores(QUERY, KEY), lambda q, k, f: q @ k),
    "scaled dot": (scores.scaled_dot_scores(QUERY, KEY), lambda q, k, f: q @ k / np.sqrt(WIDTH)),
    "general": (scores.general_scores(QUERY, KEY, KERNEL), lambda q, k, f: q @ KERNEL @ k),
    "additive": (scores.additive_scores(QUERY, KEY, VECTOR), lambda q, k, f: VECTOR @ np.tanh(q + k)),
    "concat": (
        scores.additive_scores(QUERY @ WIDE_KERNEL[:WIDTH], KEY @ WIDE_KERNEL[WIDTH:], LONG_VECTOR),
        lambda q, k, f: LONG_VECTOR @ np.tanh(np.concatenate([q, k]) @ WIDE_KERNEL),
    ),
    "normalized additive": (
        scores.normalized_additive_scores(QUERY, KEY, VECTOR, GAIN, BIAS),
        lambda q, k, f: GAIN * VECTOR / np.sqrt((VECTOR**2).sum()) @ np.tanh(q + k + BIAS),
    ),
    "location-sensitive": (
        scores.location_sensitive_scores(QUERY, KEY, FEATURES, VECTOR, BIAS),
        lambda q, k, f: VECTOR @ np.tanh(q + k + f + BIAS),
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_equation(name):
    found, equation = SCORES[name]
    query, key, features = (np.asarray(array) for array in (QUERY, KEY, FEATURES))
    for row in range(BATCH):
        for position in range(QUERIES):
            for place in range(PLACES):
                expected = equation(query[row, position], key[row, place], features[row, position, place])
                assert float(found[row, position, place]) == pytest.approx(float(expected), rel=1e-4, abs=1e-5)


NORMALIZERS = {
    "sharpened": lambda each, mask: scores.sharpened_softmax(each, mask, sharpness=2.0),
    "smoothed": scores.smoothed_sigmoid,
}


def test_the_output_is_the_sum_of_values_by_weights_without_padding():
    values = normal(8, BATCH, PLACES, 7)
    output, weights = scores.attend(SCORES["dot"][0], values, MASK[:, None, :])
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert (weights[1, :, 3:] == 0).all()
    np.testing.assert_allclose(output, jnp.einsum("BQM,BMU->BQU", weights, values), atol=1e-5)


def test_normalizers_are_their_equations():
    each, mask = normal(9, 1, 1, 4), jnp.array([[[1, 1, 1, 0]]], bool)
    raw = np.asarray(each)[0, 0, :3]
    powers, sigmoids = np.exp(2 * raw), 1 / (1 + np.exp(-raw))
    for name, expected in (("sharpened", powers / powers.sum()), ("smoothed", sigmoids / sigmoids.sum())):
        np.testing.assert_allclose(NORMALIZERS[name](each, mask)[0, 0], [*expected, 0], rtol=1e-5)


def test_where_nothing_may_be_attended_to_all_weights_are_zero():
    assert (scores.masked_softmax(jnp.ones((1, 2, 3)), jnp.zeros((1, 2, 3), bool)) == 0).all()


def test_location_based_scores_know_so_many_places():
    kernel = normal(10, WIDTH, 3)
    found = scores.location_based_scores(QUERY, kernel, PLACES)
    np.testing.assert_allclose(found[:, :, :3], jnp.einsum("BQD,DP->BQP", QUERY, kernel), rtol=1e-4, atol=1e-5)
    assert (scores.masked_softmax(found, jnp.ones(found.shape, bool))[:, :, 3:] == 0).all()
    assert scores.location_based_scores(QUERY, kernel, 2).shape == (BATCH, QUERIES, 2)


def test_literal_windows():
    centers = jnp.array([[0.0, 2.0, 4.0], [0.0, 1.4, 2.0]])
    expected = [
        [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]],
        [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 0, 0]],
    ]
    np.testing.assert_array_equal(scores.window_mask(centers, 1, MASK), np.array(expected, bool))


def test_monotonic_windows_never_leave_the_source():
    positions = jnp.broadcast_to(jnp.arange(7)[None], (BATCH, 7))
    centers = scores.monotonic_centers(positions, LENGTHS)
    np.testing.assert_array_equal(centers, [[0, 1, 2, 3, 4, 4, 4], [0, 1, 2, 2, 2, 2, 2]])
    assert scores.window_mask(centers, 1, MASK).any(-1).all()


def test_predicted_centers_lie_inside_the_source():
    for scale in (1.0, 100.0):
        centers = scores.predicted_centers(QUERY * scale, VECTOR * scale, LENGTHS)
        assert (centers >= 0).all() and (centers <= LENGTHS[:, None] - 1).all()
        assert scores.window_mask(centers, 1, MASK).any(-1).all()
    query = np.asarray(QUERY)[1, 2]
    expected = 2 / (1 + np.exp(-(np.asarray(VECTOR) @ np.tanh(query))))
    assert float(scores.predicted_centers(QUERY, VECTOR, LENGTHS)[1, 2]) == pytest.approx(expected, rel=1e-5)


def test_the_gaussian_multiplies_the_weights():
    """Weights from scores plus the Gaussian's logarithm are those of the paper, times one factor a query."""
    centers = jnp.array([[0.5, 2.0, 4.0], [0.0, 1.0, 2.0]])
    half_width, each = 2, SCORES["dot"][0]
    mask = scores.window_mask(centers, half_width, MASK)
    found = scores.masked_softmax(each + scores.gaussian_scores(centers, half_width, MASK), mask)
    distance = jnp.arange(PLACES)[None, None, :] - centers[:, :, None]
    papers = scores.masked_softmax(each, mask) * jnp.exp(-(distance**2) / (2 * (half_width / 2) ** 2))
    np.testing.assert_allclose(found, papers / papers.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_location_features_look_around_each_place():
    weights, filters = jnp.array([[[0.0, 1.0, 0.0, 0.0, 0.5]]]), jnp.array([[1.0, 0.0], [2.0, 5.0], [3.0, 0.0]])
    expected = [[3, 0], [2, 5], [1, 0], [1.5, 0], [1, 2.5]]
    np.testing.assert_allclose(scores.location_features(weights, filters)[0, 0], expected)
