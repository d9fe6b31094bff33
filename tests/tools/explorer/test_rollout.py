import numpy as np

from transformer_jax.tools.explorer.rollout import decoder_rollout, rollout


def random_weights(rng, *shape):
    weights = rng.uniform(0.1, 1, shape)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_one_layer_is_half_attention_half_residual():
    weights = np.array([[[[1.0, 0.0], [0.2, 0.8]], [[1.0, 0.0], [0.6, 0.4]]]])
    np.testing.assert_allclose(rollout(weights), [[[1.0, 0.0], [0.2, 0.8]]])


def test_layers_multiply_the_last_one_first():
    first, second = random_weights(np.random.default_rng(0), 2, 1, 3, 3)
    mixed = [(each[0] + np.eye(3)) / 2 for each in (first, second)]
    np.testing.assert_allclose(rollout(np.stack([first, second]))[1], mixed[1] @ mixed[0])


def test_a_decoder_divides_its_attention_between_both_sides():
    rng = np.random.default_rng(1)
    own, cross = random_weights(rng, 3, 2, 4, 4), random_weights(rng, 3, 2, 4, 5)
    source = random_weights(rng, 5, 5)
    to_target, to_source = decoder_rollout(own, cross, source)
    np.testing.assert_allclose(to_target.sum(axis=-1) + to_source.sum(axis=-1), 1.0)
    np.testing.assert_allclose(to_source[0], cross[0].mean(axis=0) @ source / 2)
    np.testing.assert_allclose(to_target[0], (own[0].mean(axis=0) + np.eye(4)) / 4)
