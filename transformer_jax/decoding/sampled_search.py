"""Sampling in the form of a search: the beams of a sentence are samples, which never compete."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, PAD_ID, Array, Float, Int
from transformer_jax.decoding.beam_search import (
    BeamState,
    Hypotheses,
    Rules,
    StepFunction,
    length_penalty_divisor,
    start_search,
)
from transformer_jax.decoding.sampling import SamplingRule, draw, row_keys
from transformer_jax.decoding.search_kind import SearchKind
from transformer_jax.sequence_types import DecodeCache


class SampledRules(NamedTuple):
    """The options of sampling, static: ``search`` has as many beams and results as samples."""

    search: Rules
    sampling: SamplingRule


def cache_with_keys(cache: DecodeCache, key: Array, row_ids: Int[Array, "B"], copies: Int[Array, "B W"]) -> DecodeCache:
    """The cache for sampling, with a key [B, W] for each sample, by the numbers of its row and of its copy."""
    keys = jax.vmap(row_keys)(row_keys(key, row_ids), copies)
    return cache._replace(per_sentence=(cache.per_sentence, keys))


def step_beside_keys(step: StepFunction) -> StepFunction:
    """``step`` for a cache with keys, which it does not read."""

    def with_keys(token_ids: Int[Array, "B W"], cache: DecodeCache) -> tuple[Array, DecodeCache]:
        return step(token_ids, cache._replace(per_sentence=cache.per_sentence[0]))

    return with_keys


def start_samples(
    cache: DecodeCache,
    limits: Int[Array, "B"],
    room: int,
    rules: SampledRules,
    forced: Int[Array, "B P"] | None = None,
) -> BeamState:
    """The state before the first token, of a cache with keys. Raises ValueError for impossible sizes and for forced tokens."""
    if forced is not None:
        raise ValueError("samples cannot be forced to begin with given tokens")
    state = start_search(cache, limits, room, rules.search)
    return state._replace(alive=state.alive._replace(log_probs=jnp.zeros_like(state.alive.log_probs)))


def draw_next(state: BeamState, logits: Float[Array, "B W V"], rules: SampledRules) -> BeamState:
    """One more token of every sample; a sentence is done when all of its samples have ended, with EOS or at its limit.

    A hypothesis is a sample, in the order of the keys; its tokens are the first of what the key alone gives.
    """
    _, keys = state.cache.per_sentence
    found = draw(logits.reshape(-1, logits.shape[2]), keys.reshape(-1), state.position, rules.sampling)
    drawn, log_probs = (each.reshape(keys.shape) for each in found)

    length = state.position + 1
    has_ended = state.is_done[:, None] | (state.finished.lengths > 0)
    last_ids = jnp.where(has_ended, PAD_ID, drawn)
    log_probs = state.alive.log_probs + jnp.where(has_ended, 0.0, log_probs)
    ids = state.alive.ids.at[:, :, state.position].set(last_ids)
    ends = ~has_ended & ((drawn == EOS_ID) | (length >= state.limits[:, None]))
    newly = Hypotheses(
        ids,
        log_probs / length_penalty_divisor(length, rules.search.length_penalty),
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


SAMPLED_SEARCH = SearchKind(start_samples, draw_next, lambda state, rules: state.finished)
