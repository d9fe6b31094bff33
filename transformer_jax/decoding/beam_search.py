"""Beam search with a length penalty, over a model known only as a step function.

Two sets are kept for every sentence: the ``W`` most probable unfinished prefixes ("alive") and the ``N`` best finished
hypotheses by length-normalized score. One beam is greedy search.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, Array, Bool, Float, Int, PyTree
from transformer_jax.decoding.top_k import top_k
from transformer_jax.sequence_types import DecodeCache

StepFunction = Callable[[Int[Array, "B W"], DecodeCache], tuple[Float[Array, "B W V"], DecodeCache]]


class Hypotheses(NamedTuple):
    """The ``N`` best hypotheses of every sentence, best first.

    Shapes: ``ids`` int32 ``[B, N, T]``, each ending with EOS and padded with PAD; ``scores`` float32 ``[B, N]``, the
    log-probability divided by the length penalty; ``log_probs`` float32 ``[B, N]``, natural logarithm; ``lengths``
    int32 ``[B, N]``, tokens with EOS. Where there are fewer than ``N`` different hypotheses (a sentence of at most 0
    tokens, a tiny vocabulary) the rest has length 0, only PAD, and -inf for both numbers.
    """

    ids: Int[Array, "B N T"]
    scores: Float[Array, "B N"]
    log_probs: Float[Array, "B N"]
    lengths: Int[Array, "B N"]


class Rules(NamedTuple):
    """Constraints of a beam search: ``limits`` int32 ``[B]``, the most tokens of a hypothesis, and the options given."""

    limits: Int[Array, "B"]
    beam_width: int
    num_results: int
    length_penalty: float | Float[Array, ""]
    bos_id: int
    eos_id: int


class Alive(NamedTuple):
    """Unfinished prefixes, most probable first: ``ids`` ``[B, W, T]``, ``last_ids`` and ``log_probs`` ``[B, W]``."""

    ids: Int[Array, "B W T"]
    last_ids: Int[Array, "B W"]
    log_probs: Float[Array, "B W"]


class BeamState(NamedTuple):
    """Carry of the loop: ``position`` is the number of tokens chosen so far, ``per_beam`` belongs to ``alive``."""

    position: Int[Array, ""]
    alive: Alive
    finished: Hypotheses
    is_done: Bool[Array, "B"]
    per_beam: PyTree


def beam_search(
    step: StepFunction,
    cache: DecodeCache,
    *,
    max_lengths: Int[Array, "B"],
    max_length: int,
    beam_width: int,
    length_penalty: float | Float[Array, ""],
    num_results: int | None = None,
    bos_id: int = BOS_ID,
    eos_id: int = EOS_ID,
) -> Hypotheses:
    """Returns the best hypotheses of every sentence (section 6.1; penalty: Wu et al. 2016, equation 14).

    A hypothesis of sentence ``b`` has at most ``min(max_lengths[b], max_length)`` tokens including its EOS, which is
    the only choice in the last place; a row with a limit of 0 (padding) takes no step and has no hypothesis. A prefix
    finishes when its EOS is among the ``W`` best of all continuations. PAD and BOS are never chosen; the
    probabilities are the model's own, not renormalized over what may be chosen.

    A sentence is done when no alive prefix can still beat the worst of its ``num_results`` (default: ``beam_width``)
    hypotheses, which is exact since log-probabilities only fall and the penalty only grows; with one beam, at its
    first EOS. A done sentence is frozen, so its result does not depend on what else is in the batch. Asking for fewer
    results than beams stops earlier and returns the same first ones.

    ``length_penalty`` (alpha, at least 0) may be traced; ``max_length``, ``beam_width`` and ``num_results`` are
    static. Of ``cache``, leaves ``[B, W, ...]`` of ``per_beam`` follow their prefixes, its scalars are shared, and
    ``per_sentence`` never changes. Raises ValueError for impossible sizes and for leaves of ``per_beam`` of another
    shape.
    """
    num_results = beam_width if num_results is None else num_results
    _check_sizes(cache, max_lengths.shape[0], max_length, beam_width, num_results)
    limits = jnp.clip(max_lengths, 0, max_length)
    rules = Rules(limits, beam_width, num_results, length_penalty, bos_id, eos_id)

    def is_running(state: BeamState) -> Bool[Array, ""]:
        return (state.position < max_length) & ~jnp.all(state.is_done)

    def advance(state: BeamState) -> BeamState:
        logits, new_cache = step(state.alive.last_ids, DecodeCache(state.per_beam, cache.per_sentence))
        return _advance(state._replace(per_beam=new_cache.per_beam), logits, rules)

    return jax.lax.while_loop(is_running, advance, _start(cache, rules, max_length)).finished


def _advance(state: BeamState, logits: Float[Array, "B W V"], rules: Rules) -> BeamState:
    """Returns the state with one more token on every alive prefix; ``state.per_beam`` is that after the step."""
    log_probs = _choosable_log_probs(logits, state.position + 1 >= rules.limits, rules.bos_id, rules.eos_id)
    candidates, parents = _expand(state.alive, log_probs, state.position)
    is_eos = candidates.last_ids == rules.eos_id

    newly = _finish(candidates, is_eos, state.position + 1, rules)
    finished = _freeze(state.is_done, state.finished, _best_finished(state.finished, newly, rules.num_results))

    alive_log_probs, survivors = jax.lax.top_k(jnp.where(is_eos, -jnp.inf, candidates.log_probs), rules.beam_width)
    alive = select_beams(candidates, survivors)._replace(log_probs=alive_log_probs)
    per_beam = state.per_beam
    if rules.beam_width > 1:
        per_beam = select_beams(per_beam, jnp.take_along_axis(parents, survivors, axis=1))

    best_attainable = alive.log_probs[:, 0] / length_penalty_divisor(rules.limits, rules.length_penalty)
    is_done = state.is_done | (best_attainable <= finished.scores[:, -1])
    if rules.beam_width == 1:
        is_done |= finished.lengths[:, 0] > 0
    return BeamState(state.position + 1, alive, finished, is_done, per_beam)


def select_beams(tree: PyTree, index: Int[Array, "B N"]) -> PyTree:
    """Returns the leaves ``[B, W, ...]`` of ``tree`` with beam ``index[b, n]`` in place ``n``; scalars as they are."""

    def select(leaf: Array) -> Array:
        if leaf.ndim == 0:
            return leaf
        # take_along_axis, because XLA's CPU backend runs an indexed gather of whole beams ten times slower
        return jnp.take_along_axis(leaf, jnp.expand_dims(index, tuple(range(2, leaf.ndim))), axis=1)

    return jax.tree.map(select, tree)


def _check_sizes(cache: DecodeCache, batch_size: int, max_length: int, beam_width: int, num_results: int) -> None:
    if beam_width < 1 or max_length < 1:
        raise ValueError(f"beam_width={beam_width} and max_length={max_length} must be at least 1")
    if not 1 <= num_results <= beam_width:
        raise ValueError(f"num_results={num_results} must lie between 1 and beam_width={beam_width}")
    for path, leaf in jax.tree_util.tree_leaves_with_path(cache.per_beam):
        shape = jnp.shape(leaf)
        if shape and shape[:2] != (batch_size, beam_width):
            where = jax.tree_util.keystr(path)
            expected = f"[B={batch_size}, W={beam_width}, ...] or be a scalar"
            raise ValueError(f"cache.per_beam{where} has shape {shape}; it must be {expected}")


def _start(cache: DecodeCache, rules: Rules, max_length: int) -> BeamState:
    batch_size, beam_width, num_results = rules.limits.shape[0], rules.beam_width, rules.num_results
    # all beams start from the same empty prefix, so only one of them may live
    log_probs = jnp.full((batch_size, beam_width), -jnp.inf, jnp.float32).at[:, 0].set(0.0)
    alive = Alive(
        ids=jnp.full((batch_size, beam_width, max_length), PAD_ID, jnp.int32),
        last_ids=jnp.full((batch_size, beam_width), rules.bos_id, jnp.int32),
        log_probs=log_probs,
    )
    nothing = jnp.full((batch_size, num_results), -jnp.inf, jnp.float32)
    finished = Hypotheses(
        ids=jnp.full((batch_size, num_results, max_length), PAD_ID, jnp.int32),
        scores=nothing,
        log_probs=nothing,
        lengths=jnp.zeros((batch_size, num_results), jnp.int32),
    )
    per_beam = jax.tree.map(jnp.asarray, cache.per_beam)
    return BeamState(jnp.zeros((), jnp.int32), alive, finished, rules.limits <= 0, per_beam)


def _choosable_log_probs(
    logits: Float[Array, "B W V"], is_last: Bool[Array, "B"], bos_id: int, eos_id: int
) -> Float[Array, "B W V"]:
    """Float32 log-probabilities, -inf for PAD and BOS, and in a sentence's last place for all but EOS."""
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    ids = jnp.arange(logits.shape[-1])
    is_choosable = (ids != PAD_ID) & (ids != bos_id)
    may_choose = is_choosable[None, :] & (~is_last[:, None] | (ids == eos_id)[None, :])
    return jnp.where(may_choose[:, None, :], log_probs, -jnp.inf)


def _expand(
    alive: Alive, log_probs: Float[Array, "B W V"], position: Int[Array, ""]
) -> tuple[Alive, Int[Array, "B C"]]:
    """Returns the ``C = 2 W`` most probable continuations and the beams they come from: at least W of them continue.

    (Each beam has one EOS, so at most W of 2 W continuations end.)
    """
    batch_size, beam_width, vocabulary_size = log_probs.shape
    totals = (alive.log_probs[:, :, None] + log_probs).reshape(batch_size, -1)
    best, index = top_k(totals, 2 * beam_width)
    parents, tokens = index // vocabulary_size, (index % vocabulary_size).astype(jnp.int32)
    ids = select_beams(alive.ids, parents).at[:, :, position].set(tokens)
    return Alive(ids, tokens, best), parents


def _finish(candidates: Alive, is_eos: Bool[Array, "B C"], length: Int[Array, ""], rules: Rules) -> Hypotheses:
    """Returns as hypotheses those of the best ``W`` candidates that end here, and empty ones in the other places."""
    best = jax.tree.map(lambda leaf: leaf[:, : rules.beam_width], candidates)
    is_finished = is_eos[:, : rules.beam_width]
    log_probs = jnp.where(is_finished, best.log_probs, -jnp.inf)
    return Hypotheses(
        ids=jnp.where(is_finished[:, :, None], best.ids, PAD_ID),
        scores=log_probs / length_penalty_divisor(length, rules.length_penalty),
        log_probs=log_probs,
        lengths=jnp.where(is_finished, length, 0),
    )


def _best_finished(old: Hypotheses, new: Hypotheses, num_results: int) -> Hypotheses:
    """Returns the best ``num_results`` of both by score; of equal ones the older, so -inf replaces none."""
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), old, new)
    _, index = jax.lax.top_k(both.scores, num_results)
    return select_beams(both, index)


def _freeze(is_done: Bool[Array, "B"], old: Hypotheses, new: Hypotheses) -> Hypotheses:
    """Returns ``old`` for the sentences that are done and ``new`` for the others."""

    def choose(old_leaf: Array, new_leaf: Array) -> Array:
        return jnp.where(jnp.expand_dims(is_done, tuple(range(1, new_leaf.ndim))), old_leaf, new_leaf)

    return jax.tree.map(choose, old, new)


def length_penalty_divisor(lengths: Int[Array, "..."], alpha: float | Float[Array, ""]) -> Float[Array, "..."]:
    """Returns ``((5 + length) / 6) ** alpha``, float32 (Wu et al. 2016, equation 14).

    ``lengths`` count the tokens of a hypothesis, its EOS included. It is 1 for length 1, and for ``alpha`` 0 always;
    it never falls as hypotheses grow, for ``alpha`` of at least 0, which is what lets search stop early without
    error.
    """
    return ((5.0 + lengths) / 6.0) ** alpha
