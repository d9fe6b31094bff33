"""Loss terms of parts: they are the functions of their papers, are part of the loss, and accumulate
as it does."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.config import ConfigError, MeshConfig, from_dict, hyperparameters_of
from transformer_jax.kit.r_drop import symmetric_divergence
from transformer_jax.kit.z_loss import ZLoss
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.tools.preflight.compiled_program import product_flops
from transformer_jax.training.losses import label_smoothed_cross_entropy
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.step import _accumulated

BATCH = Tokens.from_ids(np.array([[5, 6, 7, 8, 2], [9, 5, 2, 0, 0]], np.int32))


def objective(terms: str, dropout: float):
    values = {
        "task": "language_model",
        "tokenizer": {"kind": "byte"},
        "model": {
            "d_model": 8,
            "d_ff": 8,
            "num_heads": 2,
            "num_layers": 1,
            "dropout": dropout,
            "embedding_dropout": dropout,
            "projection": "soft_capped",
        },
        "training": {"loss_terms": terms, "label_smoothing": 0.0 if "unigram" in terms else 0.1},
        "parts": {name: {"weight": 0.5} for name in terms.split(",") if name} | {"soft_capped": {"cap": 2.0}},
    }
    return objective_of(from_dict(values), make_mesh(MeshConfig(data=1), jax.devices()[:1]))


def sums_and_gradient(made, params, batch=BATCH):
    def loss(params, batch, key, hyperparameters):
        sums = made.loss(params, batch, key, hyperparameters)
        return sums.loss, sums

    arguments = params, batch, jax.random.key(1), hyperparameters_of(made.config)
    gradient, sums = jax.jit(jax.grad(loss, has_aux=True))(*arguments)
    return sums, gradient


def direct(made, params):
    """The loss and the terms from logits of all tokens."""
    weights = jnp.asarray(BATCH.segments != 0, jnp.float32)

    def logits(key):
        model = made.training_model(hyperparameters_of(made.config))
        found = call(model, params, "__call__", BATCH, train=True, rngs={"dropout": key})
        return found, label_smoothed_cross_entropy(found, BATCH.ids, weights, 0.1).loss

    (first, loss), (second, other) = logits(jax.random.key(1)), logits(jax.random.fold_in(jax.random.key(1), 1))
    terms = {
        "z_loss": 0.5 * jnp.sum(jax.nn.logsumexp(first, -1) ** 2 * weights),
        "r_drop": other + 0.5 * jnp.sum(symmetric_divergence(first, second) * weights),
    }
    return loss + sum(terms.values()), terms


def test_terms_are_part_of_the_loss_and_of_its_gradient():
    made = objective("z_loss,r_drop", 0.5)
    params = random_params(made.init_params, jax.random.key(0))
    sums, gradient = sums_and_gradient(made, params)
    (loss, terms), expected = jax.jit(jax.value_and_grad(partial(direct, made), has_aux=True))(params)
    assert sums.extras.keys() == terms.keys()
    for name, term in terms.items():
        np.testing.assert_allclose(sums.extras[name], term, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(sums.loss, loss, rtol=1e-5)
    for mine, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_divergence_is_zero_for_equal_logits_and_symmetric():
    one, other = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    divergence = jax.jit(symmetric_divergence)
    np.testing.assert_allclose(divergence(one, one), 0, atol=1e-6)
    p, q = (np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (one, other))
    both = np.sum(p * np.log(p / q), -1) + np.sum(q * np.log(q / p), -1)
    np.testing.assert_allclose(divergence(one, other), both / 2, rtol=1e-4)


def test_two_passes_cost_two_updates_and_terms_of_logits_nearly_nothing():
    """Products of forward and backward pass: no logits are computed twice."""

    def flops(terms: str) -> int:
        made = objective(terms, 0.5)
        params = jax.eval_shape(made.init_params, jax.random.key(0))
        arguments = params, BATCH, jax.random.key(1), hyperparameters_of(made.config)
        return product_flops(jax.grad(lambda *inputs: made.loss(*inputs).loss), *arguments)

    plain = flops("")
    assert flops("r_drop") == flops("r_drop,z_loss") == 2 * plain
    # The product with the frequencies, forward and backward; one of logits has the width of the
    # model.
    vocabulary = objective("", 0.5).config.tokenizer.vocabulary_size
    assert flops("unigram_smoothing") == plain + 2 * 2 * vocabulary * BATCH.ids.size


def test_a_term_of_an_earlier_version_is_refused(monkeypatch):
    monkeypatch.setattr(ZLoss, "of_logits", lambda self: None)
    made = objective("z_loss", 0.0)
    params = jax.eval_shape(made.init_params, jax.random.key(0))
    with pytest.raises(ConfigError, match=r"'z_loss' takes \(\).* of_logits\(self, labels, weights\)"):
        jax.eval_shape(made.loss, params, BATCH, jax.random.key(1), hyperparameters_of(made.config))


@pytest.mark.slow
def test_terms_accumulate_over_micro_batches():
    made = objective("z_loss,r_drop", 0.0)
    params = random_params(made.init_params, jax.random.key(0))
    whole, _ = sums_and_gradient(made, params)

    def loss(*arguments):
        sums = made.loss(*arguments)
        return sums.loss, sums

    arguments = params, BATCH, jax.random.key(1), hyperparameters_of(made.config)
    _, accumulated = jax.jit(_accumulated(jax.grad(loss, has_aux=True), 2))(*arguments)
    for mine, theirs in zip(jax.tree.leaves(accumulated), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
