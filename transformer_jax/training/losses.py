"""Losses as sums, to be divided once, at the very end."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import AnyArray, Array, Float, Int, Logits
from transformer_jax.config import Number


class LossSums(NamedTuple):
    """Sums over the tokens of some batch, float32 scalars; adding two of them gives the sums over both batches.

    ``loss`` is what training minimizes, ``nll`` the negative log-likelihood in nats (exp(nll / tokens) is the perplexity per
    token), ``correct`` the number of tokens that were the most likely one.
    """

    loss: Array
    nll: Array
    correct: Array
    tokens: Array

    @classmethod
    def zero(cls) -> "LossSums":
        """The sums over nothing."""
        return cls(*(jnp.zeros((), jnp.float32) for _ in cls._fields))

    def __add__(self, other: "LossSums") -> "LossSums":  # type: ignore[override]
        return LossSums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def label_smoothed_cross_entropy(
    logits: Logits, labels: Int[AnyArray, "B T"], weights: Float[AnyArray, "B T"], smoothing: Number
) -> LossSums:
    """Cross entropy against (1 - eps) one-hot + eps / V (Szegedy et al. 2016, section 7).

    ``weights`` is 1 on the tokens that count and 0 elsewhere; ``smoothing`` is eps, None where there is none. The cross entropy
    with the smoothed distribution q' is log Z - (1 - eps) z_label - eps mean(z), so no logarithm of a probability is ever
    taken.
    """
    labels, weights = jnp.asarray(labels), jnp.asarray(weights)
    loss, nll, is_correct = _token_losses(logits, labels, smoothing)
    return LossSums(
        loss=jnp.sum(loss * weights),
        nll=jnp.sum(nll * weights),
        correct=jnp.sum(is_correct * weights),
        tokens=jnp.sum(weights),
    )


@jax.custom_vjp
def _token_losses(logits: Logits, labels: Int[Array, "B T"], smoothing: Number) -> tuple[Array, Array, Array]:
    """Smoothed loss, negative log-likelihood and whether the label was the most likely, for each token [B, T].

    Only the loss has a gradient, that of the logits; the other two are reports.
    """
    return _token_losses_forward(logits, labels, smoothing)[0]


def _token_losses_forward(
    logits: Logits, labels: Int[Array, "B T"], smoothing: Number
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array, Number]]:
    largest = jnp.max(logits, axis=-1)
    log_normalizer = largest + jnp.log(jnp.sum(jnp.exp(logits - largest[..., None]), axis=-1))
    label_logit = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    nll = log_normalizer - label_logit
    loss = nll
    if smoothing is not None:
        loss = nll + smoothing * (label_logit - jnp.mean(logits, axis=-1))
    return (loss, nll, label_logit >= largest), (logits, labels, log_normalizer, smoothing)


def _token_losses_backward(
    residuals: tuple[Array, Array, Array, Number], cotangents: tuple[Array, Array, Any]
) -> tuple[Array, None, None]:
    """softmax(z) - q', written as one elementwise expression of the logits: nothing else of their size is ever stored."""
    logits, labels, log_normalizer, smoothing = residuals
    smoothing = 0.0 if smoothing is None else smoothing
    is_label = lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1) == labels[..., None]
    smoothed = jnp.where(is_label, 1.0 - smoothing, 0.0) + smoothing / logits.shape[-1]
    gradient = (jnp.exp(logits - log_normalizer[..., None]) - smoothed) * cotangents[0][..., None]
    # Computed once: without the barrier each of the two products that follow would recompute it.
    return lax.optimization_barrier(gradient), None, None


_token_losses.defvjp(_token_losses_forward, _token_losses_backward)
