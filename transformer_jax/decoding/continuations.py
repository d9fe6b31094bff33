"""The most probable continuations of the beams of a sentence, from raw logits in two passes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Int

SMALLEST_GROUP, LARGEST_GROUP = 32, 128


class Continuations(NamedTuple):
    """``C`` continuations of every sentence, best first: beams they come from, tokens, log-probabilities of the whole."""

    parents: Int[Array, "B C"]
    tokens: Int[Array, "B C"]
    log_probs: Float[Array, "B C"]


def best_continuations(
    prefixes: Float[Array, "B W"], logits: Float[Array, "B W V"], count: int, banned: tuple[int, ...]
) -> Continuations:
    """The ``count`` most probable pairs of a prefix and a next token that is not ``banned``; of equal ones the first.

    ``prefixes`` are log-probabilities. Those of the whole vocabulary are never written: the logits are read once for the
    maxima of groups of tokens, once for the normalizers, and then only in the ``count`` best groups of a sentence.
    """
    batch_size, beam_width, vocabulary_size = logits.shape
    size = _group_size(vocabulary_size)
    if vocabulary_size % size:
        logits = jnp.pad(logits, ((0, 0), (0, 0), (0, -vocabulary_size % size)), constant_values=-jnp.inf)
    groups = logits.reshape(batch_size, beam_width, -1, size)
    maxima = jnp.max(groups, axis=-1)
    normalizers = _normalizers(logits, jnp.max(maxima, axis=-1))
    for group in {token // size for token in banned}:
        is_banned = jnp.isin(group * size + jnp.arange(size), jnp.asarray(banned))[None, None]
        allowed = jnp.where(is_banned, -jnp.inf, groups[:, :, group])
        maxima = maxima.at[:, :, group].set(jnp.max(allowed, axis=-1))

    num_groups = maxima.shape[2]
    totals = (prefixes[:, :, None] + (maxima - normalizers[:, :, None])).reshape(batch_size, -1)
    _, chosen = jax.lax.top_k(totals, min(count, totals.shape[1]))
    chosen = jnp.sort(chosen, axis=1)  # so that of equal continuations the first is found first
    of_chosen = jnp.take_along_axis(groups.reshape(batch_size, -1, size), chosen[:, :, None], axis=1)
    beams, first = chosen // num_groups, chosen % num_groups * size
    log_probs = of_chosen - jnp.take_along_axis(normalizers, beams, axis=1)[:, :, None]
    log_probs = jnp.take_along_axis(prefixes, beams, axis=1)[:, :, None] + log_probs
    tokens = first[:, :, None] + jnp.arange(size, dtype=jnp.int32)[None, None]
    is_banned = jnp.isin(tokens, jnp.asarray(banned, jnp.int32))
    log_probs = jnp.where(is_banned, -jnp.inf, log_probs).reshape(batch_size, -1)

    best, place = jax.lax.top_k(log_probs, min(count, beam_width * vocabulary_size))
    tokens = jnp.take_along_axis(tokens.reshape(batch_size, -1), place, axis=1)
    return Continuations(jnp.take_along_axis(beams, place // size, axis=1), tokens.astype(jnp.int32), best)


def continuations_by(
    tokens: Int[Array, "B"], prefixes: Float[Array, "B W"], logits: Float[Array, "B W V"], count: int
) -> Continuations:
    """Every prefix continued by the token of its sentence, the most probable first; up to ``count`` the rest is impossible."""
    of_tokens = jnp.take_along_axis(logits, tokens[:, None, None], axis=2)[:, :, 0]
    totals = prefixes + (of_tokens - _normalizers(logits, jnp.max(logits, axis=-1)))
    best, parents = jax.lax.top_k(totals, prefixes.shape[1])
    missing = ((0, 0), (0, count - best.shape[1]))
    return Continuations(
        jnp.pad(parents, missing),
        jnp.broadcast_to(tokens[:, None], (best.shape[0], count)).astype(jnp.int32),
        jnp.pad(best, missing, constant_values=-jnp.inf),
    )


def _normalizers(logits: Float[Array, "B W V"], maxima: Float[Array, "B W"]) -> Float[Array, "B W"]:
    """Logarithms of the sums of exponentials, as ``jax.nn.logsumexp``; ``maxima`` of each row, which are known already."""
    finite = jnp.where(jnp.isfinite(maxima), maxima, 0.0)
    return jnp.log(jnp.sum(jnp.exp(logits - finite[:, :, None]), axis=-1)) + finite


def _group_size(vocabulary_size: int) -> int:
    """The divisor nearest to 64 from 32 to 128, or 64 where there is none: then the logits must be copied to be padded."""
    sizes = [size for size in range(SMALLEST_GROUP, LARGEST_GROUP + 1) if vocabulary_size % size == 0]
    return min(sizes, key=lambda size: abs(size - 64), default=64)
