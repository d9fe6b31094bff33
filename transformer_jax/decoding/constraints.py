"""Constrained search: an automaton beside the model's step allows the next tokens."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import PAD_ID, Array, Bool, Int, PyTree
from transformer_jax.decoding.beam_search import DecodeStep
from transformer_jax.decoding.segmented_search import InitCache, MakeStep
from transformer_jax.sequence_types import DecodeCache


class Constraint(NamedTuple):
    """An automaton that reads hypotheses; its states are leaves [B, W, ...] that follow the beams.

    ``start(inputs, beam_width)`` is the state before the first token, ``advance(state, token_ids)``
    the state after one token more (BOS first), ``allowed(state)`` marks the tokens that may follow.
    """

    start: Callable[[PyTree, int], PyTree]
    advance: Callable[[PyTree, Int[Array, "B W"]], PyTree]
    allowed: Callable[[PyTree], Bool[Array, "B W V"]]


def constrained(
    init_cache: InitCache, make_step: MakeStep, beam_width: int, constraint: Constraint
) -> tuple[InitCache, MakeStep]:
    """Return the cache and step of a model that only offers allowed tokens.

    The state is beside ``per_beam``. Allowed tokens keep the probabilities of the model. PAD, which
    no search chooses, gets the probability of all other tokens.
    """

    def init(params: PyTree, inputs: PyTree, capacity: int) -> DecodeCache:
        cache = init_cache(params, inputs, capacity)
        return cache._replace(per_beam=(cache.per_beam, constraint.start(inputs, beam_width)))

    def make(params: PyTree) -> DecodeStep:
        step = make_step(params)

        def constrained_step(token_ids: Int[Array, "B W"], cache: DecodeCache) -> tuple[Array, DecodeCache]:
            per_beam, state = cache.per_beam
            logits, after = step(token_ids, cache._replace(per_beam=per_beam))
            state = constraint.advance(state, token_ids)
            logits, is_allowed = logits.astype(jnp.float32), constraint.allowed(state).at[:, :, PAD_ID].set(False)
            others = jax.nn.logsumexp(logits, axis=2, where=~is_allowed)
            logits = jnp.where(is_allowed, logits, -jnp.inf).at[:, :, PAD_ID].set(others)
            return logits, after._replace(per_beam=(after.per_beam, state))

        return constrained_step

    return init, make
