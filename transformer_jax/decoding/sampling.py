"""Sampling from any step function as a search: temperature, top-k, top-p, epsilon."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, AnyArray, Array, Bool, Float, Int
from transformer_jax.decoding.beam_search import (
    BeamState,
    DecodeStep,
    Hypotheses,
    Rules,
    Search,
    length_penalty_divisor,
    start_search,
)
from transformer_jax.decoding.continuations import GROUP_SIZE
from transformer_jax.sequence_types import DecodeCache

# The bits of the smallest float32 above 1, as an integer.
FLOAT32_ABOVE_ONE = 0x3F800001


class SamplingRule(NamedTuple):
    """Static options, which cut nothing by default. ``temperature`` 0 is greedy."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    epsilon: float = 0.0


def next_token_log_probs(logits: Float[Array, "B V"], rule: SamplingRule) -> Float[Array, "B V"]:
    """Return normalized float32 log-probabilities to sample from, -inf for tokens that are cut.

    PAD and BOS are always cut. First comes the temperature, then the ``top_k`` most probable, then
    of these the smallest set with a mass of at least ``top_p`` (nucleus sampling, Holtzman et al.
    2020, section 3.1), then of these all with a probability of at least ``epsilon``, or the most
    probable (Hewitt et al. 2022, section 3.2). Of equal logits the lower ids are kept.
    """
    ids = jnp.arange(logits.shape[-1])
    is_choosable = (ids != PAD_ID) & (ids != BOS_ID)
    logits = jnp.where(is_choosable[None, :], logits.astype(jnp.float32), -jnp.inf)
    if rule.temperature == 0:
        return jnp.where(ids[None, :] == jnp.argmax(logits, axis=-1)[:, None], 0.0, -jnp.inf)
    logits = logits / rule.temperature
    if 0 < rule.top_k < logits.shape[-1]:
        values, index = jax.lax.top_k(logits, rule.top_k)
        rows = jnp.arange(len(index))[:, None]
        is_kept = jnp.zeros(logits.shape, bool).at[rows, index].set(_nucleus(values, rule.top_p))
        logits = jnp.where(is_kept, logits, -jnp.inf)
    elif rule.top_p < 1:
        logits = jnp.where(_nucleus(logits, rule.top_p), logits, -jnp.inf)
    if rule.epsilon > 0:
        threshold = jnp.log(rule.epsilon) + jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        logits = jnp.where(logits >= jnp.minimum(threshold, logits.max(axis=-1, keepdims=True)), logits, -jnp.inf)
    return jax.nn.log_softmax(logits, axis=-1)


def draw(
    logits: Float[Array, "B V"], keys: Array, position: Int[Array, ""], rule: SamplingRule
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Return a token for each row, by its key [B] and the position, and its log-probability.

    The log-probability is the model's, in float32. Inverts the cumulative distribution, first over
    groups of tokens, then inside one, so that a row needs one random number of 23 bits, not one for
    each token.
    """
    logits = logits.astype(jnp.float32)
    at_position = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, position)
    probabilities = jnp.exp(next_token_log_probs(logits, rule))
    missing = -logits.shape[1] % GROUP_SIZE
    in_groups = jnp.pad(probabilities, ((0, 0), (0, missing))).reshape(len(logits), -1, GROUP_SIZE)
    group, rest = _at_share(in_groups.sum(axis=-1), jax.vmap(jax.random.uniform)(at_position))
    within, _ = _at_share(jnp.take_along_axis(in_groups, group[:, None, None], axis=1)[:, 0], rest)
    drawn = (group * GROUP_SIZE + within).astype(jnp.int32)
    return drawn, jnp.take_along_axis(jax.nn.log_softmax(logits), drawn[:, None], axis=1)[:, 0]


def _at_share(weights: Float[Array, "B C"], share: Float[Array, "B"]) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Return the column at ``share`` of the cumulative weights, and the position inside the column.

    ``share`` and the position are in [0, 1). A column of weight 0 is never returned.
    """
    ends = jnp.cumsum(weights, axis=1)
    target = share * jnp.max(jnp.where(weights > 0, ends, 0.0), axis=1)
    column = jnp.argmax((ends > target[:, None]) & (weights > 0), axis=1)
    end, weight = (jnp.take_along_axis(array, column[:, None], axis=1)[:, 0] for array in (ends, weights))
    return column, jnp.clip((target - end + weight) / weight, 0.0, 1.0 - 2.0**-23)


def row_keys(key: Array, row_ids: Int[Array, "B"]) -> Array:
    """Return a key [B] for each row, by the number of the row and not by its index in a batch."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, row_ids)


def _nucleus(logits: Float[Array, "B V"], top_p: float) -> Bool[Array, "B V"]:
    """Return the smallest set of the most probable tokens with a mass of at least ``top_p``.

    Of equal tokens the lower indices are in it. Bisects for its lowest probability, in a tenth of
    the time of sorting 32,000 tokens on a CPU: the bits of a positive float32 are an integer that
    grows with it.
    """
    if top_p >= 1:
        return jnp.ones(logits.shape, bool)
    probabilities = jax.nn.softmax(logits, axis=-1)
    bits = jax.lax.bitcast_convert_type(probabilities, jnp.int32)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        is_enough = jnp.sum(jnp.where(bits >= middle, probabilities, 0.0), -1, keepdims=True) >= top_p
        return jnp.where(is_enough, middle, low), jnp.where(is_enough, high, middle)

    bounds = jnp.zeros_like(bits[:, :1]), jnp.full_like(bits[:, :1], FLOAT32_ABOVE_ONE)
    lowest, _ = jax.lax.fori_loop(0, 30, halve, bounds)
    above = jnp.where(bits > lowest, probabilities, 0.0)
    equal = jnp.where(bits == lowest, probabilities, 0.0)
    mass_before = jnp.sum(above, -1, keepdims=True) + jnp.cumsum(equal, -1) - equal
    return (bits > lowest) | ((bits == lowest) & (mass_before < top_p))


def cache_with_keys(cache: DecodeCache, keys: Array) -> DecodeCache:
    """Return the cache for sampling, with a key for each sample, [B, W]."""
    return cache._replace(per_sentence=(cache.per_sentence, keys))


def step_beside_keys(step: DecodeStep) -> DecodeStep:
    """Return ``step`` for a cache with keys, which it does not read."""

    def with_keys(token_ids: Int[Array, "B W"], cache: DecodeCache) -> tuple[Array, DecodeCache]:
        return step(token_ids, cache._replace(per_sentence=cache.per_sentence[0]))

    return with_keys


def sampled_search(rules: Rules, sampling: SamplingRule) -> Search:
    """Return sampling as a search: the beams of a sentence are samples that never compete."""

    def start(
        cache: DecodeCache, limits: Int[AnyArray, "B"], capacity: int, forced: Int[AnyArray, "B P"] | None = None
    ) -> BeamState:
        """Return the state of ``start_search``, with every sample alive.

        Raises ValueError with ``forced``.
        """
        if forced is not None:
            raise ValueError("sampling takes no forced tokens")
        state = start_search(cache, limits, capacity, rules=rules)
        return state._replace(alive=state.alive._replace(log_probs=jnp.zeros_like(state.alive.log_probs)))

    return Search(start, partial(_draw_next, rules=rules, sampling=sampling), lambda state: state.finished)


def _draw_next(state: BeamState, logits: Float[Array, "B W V"], rules: Rules, sampling: SamplingRule) -> BeamState:
    """Add one more token to every sample.

    A sentence is done when all of its samples have ended, with EOS or at its limit. A hypothesis is
    a sample, in the order of the keys. Its tokens depend on its key alone, and a limit only cuts
    them.
    """
    _, keys = state.cache.per_sentence
    samples = draw(logits.reshape(-1, logits.shape[2]), keys.reshape(-1), state.position, sampling)
    drawn, log_probs = (array.reshape(keys.shape) for array in samples)

    length = state.position + 1
    has_ended = state.is_done[:, None] | (state.finished.lengths > 0)
    last_ids = jnp.where(has_ended, PAD_ID, drawn)
    log_probs = state.alive.log_probs + jnp.where(has_ended, 0.0, log_probs)
    ids = state.alive.ids.at[:, :, state.position].set(last_ids)
    ends = ~has_ended & ((drawn == EOS_ID) | (length >= state.limits[:, None]))
    newly = Hypotheses(
        ids,
        log_probs / length_penalty_divisor(length, rules.length_penalty),
        log_probs,
        jnp.broadcast_to(length, ends.shape),
    )
    finished = Hypotheses(
        jnp.where(ends[:, :, None], newly.ids, state.finished.ids),
        *(jnp.where(ends, new, old) for new, old in zip(newly[1:], state.finished[1:], strict=True)),
    )
    return state._replace(
        position=length,
        alive=state.alive._replace(ids=ids, last_ids=last_ids, log_probs=log_probs),
        finished=finished,
        is_done=state.is_done | jnp.all(finished.lengths > 0, axis=1),
    )
