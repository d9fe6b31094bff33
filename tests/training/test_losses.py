"""Label-smoothed cross entropy as sums."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from transformer_jax.training.losses import label_smoothed_cross_entropy, perplexity

LOGITS = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 7)), jnp.float32)
LABELS = jnp.array([[1, 2, 0], [6, 5, 4]])
WEIGHTS = jnp.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
jitted = jax.jit(label_smoothed_cross_entropy)


@jax.jit
@jax.value_and_grad
def gradient_of_formula(logits, smoothing):
    target = (1 - smoothing) * jax.nn.one_hot(LABELS, 7) + smoothing / 7
    return -(target * jax.nn.log_softmax(logits) * WEIGHTS[..., None]).sum()


@pytest.mark.parametrize("smoothing", [None, 0.1])
def test_it_is_the_cross_entropy_with_the_smoothed_distribution(smoothing):
    def ours(logits, smoothing):
        return label_smoothed_cross_entropy(logits, LABELS, WEIGHTS, smoothing).loss

    traced = None if smoothing is None else jnp.float32(smoothing)
    loss, gradient = jax.jit(jax.value_and_grad(ours))(LOGITS, traced)
    expected_loss, expected_gradient = gradient_of_formula(LOGITS, smoothing or 0.0)
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_nll_is_never_smoothed_and_correct_counts_the_most_likely():
    logits = np.array([[[0, 0, 0, 5], [0, 5, 0, 0]]], np.float32)
    sums = jitted(logits, jnp.array([[3, 2]]), jnp.ones((1, 2)), 0.3)
    expected = 2 * np.log(3 + np.exp(5)) - 5
    assert float(sums.nll) == pytest.approx(float(expected), rel=1e-5)
    assert (float(sums.correct), float(sums.tokens)) == (1, 2)


@pytest.mark.parametrize("statistics", ["default", "cuda"])
def test_of_equal_logits_the_first_counts_as_the_most_likely(statistics, monkeypatch):
    """As argmax and greedy decoding have it. Rounded to bfloat16, some of these rows have several
    largest logits."""
    rounded = jnp.asarray(np.random.default_rng(0).normal(size=(1, 100, 2000)), jnp.bfloat16)
    is_cuda = statistics == "cuda"
    monkeypatch.setattr(lax, "platform_dependent", lambda *args, cuda, default: (cuda if is_cuda else default)(*args))
    sums_of = jax.jit(lambda *inputs: label_smoothed_cross_entropy(*inputs, jnp.ones((1, 100)), 0.1))
    logits = np.asarray(rounded, np.float32)
    best, second = np.argmax(logits, axis=-1), np.argsort(-logits, axis=-1, kind="stable")[..., 1]
    last_of_the_best = 2000 - 1 - np.argmax(logits[..., ::-1], axis=-1)
    assert (last_of_the_best != best).any()
    for labels in (best, last_of_the_best, second):
        assert float(sums_of(rounded, labels.astype(np.int32)).correct) == (labels == best).sum()


def test_padded_columns_have_a_finite_gradient_where_all_logits_are_small():
    def loss(logits):
        return label_smoothed_cross_entropy(logits, LABELS, WEIGHTS, 0.1, 7).loss

    padded = jnp.pad(LOGITS - 96.0, ((0, 0), (0, 0), (0, 1)))
    gradient = jax.jit(jax.grad(loss))(padded)
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient[..., :7], jax.jit(jax.grad(loss))(LOGITS), atol=1e-5)


def test_extreme_logits_stay_finite():
    sums = jitted(LOGITS * 1e4, LABELS, WEIGHTS, 0.1)
    assert all(np.isfinite(value) for value in sums[:4])


def test_perplexity_is_the_exponential_of_the_mean():
    assert perplexity(10 * math.log(7), 10) == pytest.approx(7)
    assert perplexity(0.0, 3) == 1
    assert perplexity(1e6, 1) == math.inf
    with pytest.raises(ValueError, match="0 tokens"):
        perplexity(1.0, 0)
