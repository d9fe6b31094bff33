"""Losses as sums, to be divided once, at the very end."""

import math
import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import AnyArray, Array, Float, Int, Logits, PyTree
from transformer_jax.config import Number

# Below every logit, and finite, so that two of them have a difference.
NO_LOGIT = -1e30


class LossSums(NamedTuple):
    """Float32 sums over the tokens of a batch. Without ``statistics``, two may be added.

    ``loss`` is minimized. ``nll``: the negative log-likelihood in nats (exp(nll / tokens) is the
    perplexity per token). ``correct``: the number of tokens that were the most likely one.
    ``extras``: loss terms by name, part of ``loss``. ``statistics`` have a rule of their own
    (``joined_statistics``), since some are maxima. Only ``loss`` has a gradient.
    """

    loss: Array
    nll: Array
    correct: Array
    tokens: Array
    extras: dict[str, Array] = {}  # noqa: RUF012
    statistics: dict[str, dict[str, Array]] = {}  # noqa: RUF012

    @classmethod
    def zero(cls, extras: Iterable[str] = ()) -> "LossSums":
        """Return the sums over nothing, with ``extras`` of these names."""
        loss, nll, correct, tokens = (jnp.zeros((), jnp.float32) for _ in range(4))
        return cls(loss, nll, correct, tokens, {name: jnp.zeros((), jnp.float32) for name in extras})

    def __add__(self, other: "LossSums") -> "LossSums":  # type: ignore[override]
        return jax.tree.map(operator.add, self, other)

    def with_term(self, name: str, value: Array) -> "LossSums":
        """Return the sums with a loss term, added to the loss and reported under ``name``."""
        return self._replace(loss=self.loss + value, extras={**self.extras, name: self.extras.get(name, 0.0) + value})


def perplexity(nll_sum: float, token_count: int | float) -> float:
    """Return ``exp(nll_sum / token_count)``, or ``inf`` on overflow.

    In nats, without label smoothing, EOS counts as a token. It depends on the vocabulary: compare
    only runs with the same tokenizer. Raises ValueError when there are no tokens.
    """
    if token_count <= 0:
        raise ValueError(f"perplexity of {token_count} tokens is not defined")
    try:
        return math.exp(nll_sum / token_count)
    except OverflowError:
        return math.inf


LossFunction = Callable[[PyTree, PyTree, Array, PyTree], LossSums]
"""(params, batch, dropout key, hyperparameters) to sums; ``sums.loss`` is differentiated."""


def label_smoothed_cross_entropy(
    logits: Logits,
    labels: Int[AnyArray, "B T"],
    weights: Float[AnyArray, "B T"],
    smoothing: Number,
    vocabulary: int | None = None,
) -> LossSums:
    """Return the cross entropy against (1 - eps) one-hot + eps / V (Szegedy et al. 2016, sec. 7).

    ``weights`` is 1 on the tokens that count and 0 elsewhere; ``smoothing`` is eps, or None. The
    cross entropy with the smoothed distribution q' is log Z - (1 - eps) z_label - eps mean(z), so
    no logarithm of a probability is ever taken. Logits and their gradient may be bfloat16;
    everything computed from them is float32. Columns from ``vocabulary`` on only fill the last tile
    of a product: they get no probability, and their gradient is arbitrary.
    """
    labels, weights = jnp.asarray(labels), jnp.asarray(weights)
    loss, nll, is_correct = token_losses(vocabulary or logits.shape[-1], logits, labels, smoothing)
    return LossSums(
        loss=jnp.sum(loss * weights),
        nll=jnp.sum(nll * weights),
        correct=jnp.sum(is_correct * weights),
        tokens=jnp.sum(weights),
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def token_losses(
    vocabulary: int, logits: Logits, labels: Int[Array, "B T"], smoothing: Number
) -> tuple[Array, Array, Array]:
    """Return smoothed loss (with gradient), nll, and whether the label was most likely, [B, T]."""
    return _token_losses_forward(vocabulary, logits, labels, smoothing)[0]


def _token_losses_forward(
    vocabulary: int, logits: Logits, labels: Int[Array, "B T"], smoothing: Number
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array, Number]]:
    label_logit = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0].astype(jnp.float32)
    in_one_pass, default = partial(_statistics_in_one_pass, vocabulary), partial(_statistics, vocabulary)
    largest, total, summed, is_first = lax.platform_dependent(logits, labels, cuda=in_one_pass, default=default)
    log_normalizer = largest + jnp.log(total)
    nll = log_normalizer - label_logit
    loss = nll
    if smoothing is not None:
        loss = nll + smoothing * (label_logit - summed / vocabulary)
    return (loss, nll, (label_logit >= largest) & is_first), (logits, labels, log_normalizer, smoothing)


def _statistics(vocabulary: int, logits: Array, labels: Array) -> tuple[Array, Array, Array, Array]:
    """Return max(logits), sum(exp(logits - max)), sum(logits), and whether the label is first.

    First of a tie, as in argmax: of 32,000 logits in bfloat16 two are often the largest.
    """
    logits = logits.astype(jnp.float32)
    masked = mask_padding(vocabulary, logits)
    largest = jnp.max(masked, axis=-1, keepdims=True)
    is_before = lax.broadcasted_iota(labels.dtype, masked.shape, masked.ndim - 1) < labels[..., None]
    is_first = ~jnp.any((masked == largest) & is_before, axis=-1)
    return largest[..., 0], jnp.sum(jnp.exp(masked - largest), axis=-1), jnp.sum(logits, axis=-1), is_first


def _statistics_in_one_pass(vocabulary: int, logits: Array, labels: Array) -> tuple[Array, Array, Array, Array]:
    """Return ``_statistics`` from one read of the logits.

    Milakov and Gimelshein 2018, algorithm 3. Slow on a CPU.
    """

    def joined(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
        largest = jnp.maximum(left[0], right[0])
        smaller = jnp.exp(jnp.minimum(left[0], right[0]) - largest)
        total = jnp.where(left[0] > right[0], left[1] + right[1] * smaller, left[1] * smaller + right[1])
        id_of_smaller = jnp.minimum(left[3], right[3])
        first = jnp.where(left[0] > right[0], left[3], jnp.where(left[0] < right[0], right[3], id_of_smaller))
        return largest, total, left[2] + right[2], first

    logits = logits.astype(jnp.float32)
    masked = mask_padding(vocabulary, logits)
    ids = lax.broadcasted_iota(jnp.int32, masked.shape, masked.ndim - 1)
    nothing = jnp.float32(NO_LOGIT), jnp.float32(0.0), jnp.float32(0.0), jnp.int32(vocabulary)
    largest, total, summed, first = lax.reduce(
        (masked, jnp.ones_like(masked), logits, ids), nothing, joined, (logits.ndim - 1,)
    )
    return largest, total, summed, labels <= first


def mask_padding(vocabulary: int, logits: Array) -> Array:
    """Return ``logits`` with no probability in the columns from ``vocabulary`` on."""
    if logits.shape[-1] == vocabulary:
        return logits
    return jnp.where(lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) < vocabulary, logits, NO_LOGIT)


def _token_losses_backward(
    vocabulary: int, residuals: tuple[Array, Array, Array, Number], cotangents: tuple[Array, Array, Any]
) -> tuple[Array, None, None]:
    """Return softmax(z) - q' as one elementwise expression, the only array of its size."""
    logits, labels, log_normalizer, smoothing = residuals
    smoothing = 0.0 if smoothing is None else smoothing
    is_label = lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1) == labels[..., None]
    smoothed = jnp.where(is_label, 1.0 - smoothing, 0.0) + smoothing / vocabulary
    # exp(0 - log_normalizer) of a padded column may be infinite.
    probabilities = jnp.exp(mask_padding(vocabulary, logits) - log_normalizer[..., None])
    gradient = (probabilities - smoothed) * cotangents[0][..., None]
    # Computed once: without the barrier each of the two products that follow would recompute it.
    return lax.optimization_barrier(gradient.astype(logits.dtype)), None, None


token_losses.defvjp(_token_losses_forward, _token_losses_backward)
