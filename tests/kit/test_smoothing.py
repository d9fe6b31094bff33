"""Label smoothing with frequencies of tokens: the equations of the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.kit.unigram_smoothing import UnigramSmoothingSettings
from transformer_jax.registry.plugins import registered
from transformer_jax.training.projected_loss import projected_cross_entropy

RANDOM = np.random.default_rng(0)
HIDDEN, MATRIX = (jnp.asarray(RANDOM.normal(size=shape), jnp.float32) for shape in ((2, 5, 4), (7, 4)))
LABELS, WEIGHTS = jnp.array([[1, 2, 2, 3, 0], [2, 4, 6, 0, 0]]), jnp.array([[1.0, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
LOGITS = np.asarray(HIDDEN, np.float64) @ np.asarray(MATRIX, np.float64).T
LOG_P = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))


def loss_with(term):
    @jax.jit
    def loss(hidden):
        terms = {"term": term.of_logits(LABELS, WEIGHTS)}
        return projected_cross_entropy(hidden, MATRIX, LABELS, WEIGHTS, None, terms=terms).loss

    return float(loss(HIDDEN))


def test_unigram_smoothing_is_a_cross_entropy_with_frequencies():
    frequencies = np.bincount(np.asarray(LABELS).ravel(), np.asarray(WEIGHTS).ravel(), 7) / 7
    targets = 0.8 * np.eye(7)[np.asarray(LABELS)] + 0.2 * frequencies
    expected = -np.sum(np.sum(targets * LOG_P, -1) * np.asarray(WEIGHTS))
    assert loss_with(registered("loss_term")["unigram_smoothing"](UnigramSmoothingSettings(0.2))) == pytest.approx(
        expected
    )


def test_no_product_of_unigram_smoothing_is_rounded_on_an_accelerator():
    """The default float32 product is TF32 on an NVIDIA GPU and one bfloat16 pass on a TPU."""
    function = registered("loss_term")["unigram_smoothing"](UnigramSmoothingSettings(0.2)).of_logits(LABELS, WEIGHTS)
    program = jax.make_jaxpr(jax.grad(lambda logits: jnp.sum(function(logits, LABELS))))(jnp.ones((2, 5, 7)))
    products = [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert {precision for product in products for precision in product.params["precision"] or [None]} == {
        jax.lax.Precision.HIGHEST
    }
