"""Beam search replayed a token at a time, with every continuation that it weighed; the ordinary search is unchanged."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import BOS_ID, PAD_ID, Array, Float, Int, PyTree
from transformer_jax.decoding.beam_search import BeamState, Hypotheses, Rules, choose_tokens, expand, start_search
from transformer_jax.decoding.segmented_search import InitCache, MakeStep


class TracedStep(NamedTuple):
    """One step of the search of one sentence: its ``C`` candidates, most probable first, and what may follow each beam.

    ``tokens`` and ``parents`` int32 [C]: what a candidate adds to which beam; ``log_probs`` [C] of
    the whole prefix, -inf where there is none. ``best_tokens`` int32 and ``best_log_probs`` [W, K]:
    the most probable next tokens of each beam; PAD and BOS, which no search chooses, have -inf.
    """

    tokens: Int[Array, " C"]
    parents: Int[Array, " C"]
    log_probs: Float[Array, " C"]
    best_tokens: Int[Array, "W K"]
    best_log_probs: Float[Array, "W K"]


class SearchTrace:
    """Replays searches with one model, a sentence at a time; compiled programs are kept."""

    def __init__(self, init_cache: InitCache, make_step: MakeStep, rules: Rules, num_best: int) -> None:
        def start(params: PyTree, inputs: PyTree, limit: Int[Array, ""], *, capacity: int) -> BeamState:
            return start_search(init_cache(params, inputs, capacity), limit[None], capacity, rules=rules)

        def advance(params: PyTree, state: BeamState) -> tuple[BeamState, TracedStep]:
            logits, after = make_step(params)(state.alive.last_ids, state.cache)
            candidates, parents = expand(state, logits, rules)
            log_probs = jax.nn.log_softmax(logits[0].astype(jnp.float32))
            log_probs = log_probs.at[:, np.array([PAD_ID, BOS_ID])].set(-jnp.inf)
            best_log_probs, best_tokens = jax.lax.top_k(log_probs, min(num_best, log_probs.shape[-1]))
            traced = TracedStep(
                candidates.last_ids[0], parents[0], candidates.log_probs[0], best_tokens, best_log_probs
            )
            cache = after._replace(per_sentence=state.cache.per_sentence)
            return choose_tokens(state._replace(cache=cache), logits, rules), traced

        self._start = jax.jit(start, static_argnames="capacity")
        self._advance = jax.jit(advance)

    def __call__(
        self, params: PyTree, inputs: PyTree, limit: int, *, capacity: int
    ) -> tuple[list[TracedStep], Hypotheses]:
        """Return the steps of the search for ``inputs``, of one row, and the hypotheses it ends with, leaves [1, N, ...]."""
        state = self._start(params, inputs, np.int32(limit), capacity=capacity)
        steps: list[TracedStep] = []
        while not state.is_done[0] and len(steps) < limit:
            state, traced = self._advance(params, state)
            steps.append(jax.device_get(traced))
        return steps, jax.device_get(state.finished)
