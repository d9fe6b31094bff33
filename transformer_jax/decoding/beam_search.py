"""Beam search with a length penalty, over a model known only as a step function.

A sentence has two sets: the ``W`` most probable unfinished prefixes ("alive") and the ``N`` best
finished hypotheses by length-normalized score. One beam is greedy search.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, AnyArray, Array, Bool, Float, Int, PyTree
from transformer_jax.decoding.continuations import best_continuations, continuations_by, normalizers_of
from transformer_jax.registry.plugins import register
from transformer_jax.sequence_types import DecodeCache

OfSentences = TypeVar("OfSentences", bound=tuple)

DecodeStep = Callable[[Int[Array, "B W"], DecodeCache], tuple[Float[Array, "B W V"], DecodeCache]]
Choose = Callable[[Any, Float[Array, "B W V"]], Any]
"""(state, logits) to the state with one more token. The cache of the state has no ``kv_cache``."""


class Search(NamedTuple):
    """A search as functions: ``start_search`` and ``choose_tokens`` for beam search.

    ``results`` returns the hypotheses of a state, which are final when a sentence is done. States
    have ``position``, ``is_done``, ``cache`` and the ids of ``alive`` and ``finished`` as
    ``BeamState``. Every other leaf is [B, ...] or a scalar, for every capacity.
    """

    start: Callable[..., Any]
    choose: Choose
    results: Callable[[Any], "Hypotheses"]


class Hypotheses(NamedTuple):
    """The ``N`` best hypotheses of every sentence, best first.

    Shapes: ``ids`` int32 ``[B, N, T]``, ending with EOS and padded with PAD; ``scores`` float32
    ``[B, N]``, the log-probability divided by the length penalty; ``log_probs`` float32 ``[B, N]``,
    natural logarithm; ``lengths`` int32 ``[B, N]``, tokens with EOS. If there are fewer than ``N``
    different hypotheses (a sentence of at most 0 tokens, a tiny vocabulary) the rest has length 0,
    only PAD, and -inf for both numbers.
    """

    ids: Int[Array, "B N T"]
    scores: Float[Array, "B N"]
    log_probs: Float[Array, "B N"]
    lengths: Int[Array, "B N"]


class Rules(NamedTuple):
    """The options of ``beam_search``; all but ``length_penalty`` are static."""

    beam_width: int
    num_results: int
    length_penalty: float | Float[Array, ""]
    stop: str = "exact"


class Alive(NamedTuple):
    """Unfinished prefixes, most probable first."""

    ids: Int[Array, "B W T"]
    last_ids: Int[Array, "B W"]
    log_probs: Float[Array, "B W"]


class BeamState(NamedTuple):
    """A search after ``position`` tokens, of at most ``limits`` tokens.

    ``forced`` are the first tokens of every hypothesis, PAD where it may choose; P of them at most,
    and mostly 0. ``num_finished`` hypotheses of a sentence have ended, also those that are not
    among the best. ``cache.per_beam`` belongs to ``alive``. T, the capacity, is at least
    ``position``.
    """

    position: Int[Array, ""]
    limits: Int[Array, "B"]
    forced: Int[Array, "B P"]
    alive: Alive
    finished: Hypotheses
    num_finished: Int[Array, "B"]
    is_done: Bool[Array, "B"]
    cache: DecodeCache


def beam_search(
    step: DecodeStep,
    cache: DecodeCache,
    *,
    max_lengths: Int[Array, "B"],
    max_length: int,
    beam_width: int,
    length_penalty: float | Float[Array, ""],
    num_results: int | None = None,
    stop: str = "exact",
    forced: Int[Array, "B P"] | None = None,
) -> Hypotheses:
    """Return the best hypotheses of every sentence.

    The search is from Vaswani et al. 2017, section 6.1, the penalty from Wu et al. 2016, equation
    14. A hypothesis of sentence ``b`` has at most ``min(max_lengths[b], max_length)`` tokens
    including its EOS, which is the last token that may be chosen. A row with a limit of 0 (padding)
    takes no step and has no hypothesis. A prefix finishes when its EOS is among the ``W`` best of
    all continuations. PAD and BOS are never chosen; the probabilities are the model's, not
    renormalized without them.

    A sentence is done when no alive prefix can still beat the worst of its ``num_results``
    (default: ``beam_width``) hypotheses, which is exact since log-probabilities only fall and the
    penalty only grows; with one beam, at its first EOS. A done sentence is frozen, so its result
    does not depend on what else is in the batch. Asking for fewer results than beams stops earlier
    and returns the same first ones. With ``stop="first_beams"`` a sentence is also done when
    ``beam_width`` of its hypotheses have finished, which may miss better ones. ``forced`` are
    tokens that every hypothesis of a sentence begins with, padded with PAD, fewer than its limit.

    ``length_penalty`` (alpha, at least 0) may be traced; ``max_length``, ``beam_width`` and
    ``num_results`` are static. Of ``cache``, leaves ``[B, W, ...]`` of ``per_beam`` follow their
    prefixes, its scalars are shared, and ``per_sentence`` never changes. Raises ValueError for
    impossible sizes and for leaves of ``per_beam`` of another shape.
    """
    num_results = beam_width if num_results is None else num_results
    search = plain_search(Rules(beam_width, num_results, length_penalty, stop))
    state = search.start(cache, jnp.clip(max_lengths, 0, max_length), max_length, forced)
    return search.results(search_until(partial(search_next, step, choose=search.choose), state, max_length))


@register("search", "beam")
def plain_search(rules: Rules) -> Search:
    """Return beam search by ``rules``."""
    return Search(partial(start_search, rules=rules), partial(choose_tokens, rules=rules), lambda state: state.finished)


def start_search(
    cache: DecodeCache,
    limits: Int[AnyArray, "B"],
    capacity: int,
    forced: Int[AnyArray, "B P"] | None = None,
    *,
    rules: Rules,
) -> BeamState:
    """Return the state before the first token, for at most ``capacity`` tokens.

    A sentence with a limit of 0 is done. Raises ValueError for impossible sizes.
    """
    batch_size, beam_width, num_results = limits.shape[0], rules.beam_width, rules.num_results
    if not (capacity >= 1 and 1 <= num_results <= beam_width):
        sizes = f"max_length={capacity}, num_results={num_results}, beam_width={beam_width}"
        raise ValueError(f"{sizes}: must be at least 1, and there are at most as many results as beams")
    for path, leaf in jax.tree_util.tree_leaves_with_path(cache.per_beam):
        shape = jnp.shape(leaf)
        if shape and shape[:2] != (batch_size, beam_width):
            name, expected = jax.tree_util.keystr(path), f"[B={batch_size}, W={beam_width}, ...] or be a scalar"
            raise ValueError(f"cache.per_beam{name} has shape {shape}. It must be {expected}")
    alive = Alive(
        ids=jnp.full((batch_size, beam_width, capacity), PAD_ID, jnp.int32),
        last_ids=jnp.full((batch_size, beam_width), BOS_ID, jnp.int32),
        # All beams start from the same empty prefix, so only one of them may live.
        log_probs=jnp.full((batch_size, beam_width), -jnp.inf, jnp.float32).at[:, 0].set(0.0),
    )
    nothing = jnp.full((batch_size, num_results), -jnp.inf, jnp.float32)
    finished = Hypotheses(
        ids=jnp.full((batch_size, num_results, capacity), PAD_ID, jnp.int32),
        scores=nothing,
        log_probs=nothing,
        lengths=jnp.zeros((batch_size, num_results), jnp.int32),
    )
    cache = jax.tree.map(jnp.asarray, cache)
    forced = jnp.zeros((batch_size, 0), jnp.int32) if forced is None else jnp.asarray(forced)
    limits = jnp.asarray(limits)
    none = jnp.zeros_like(limits)
    return BeamState(jnp.zeros((), jnp.int32), limits, forced, alive, finished, none, limits <= 0, cache)


def search_until(
    advance: Callable[[Any], Any],
    state: Any,
    until: int | Int[AnyArray, ""],
    min_done: int | Int[AnyArray, ""] | None = None,
) -> Any:
    """Repeat ``advance`` until ``until`` tokens are chosen, or ``min_done`` sentences are done.

    ``state`` has ``position`` and ``is_done`` as ``BeamState``, and ``until`` is at most its
    capacity. ``min_done`` is by default the number of sentences.
    """
    min_done = state.is_done.size if min_done is None else min_done

    def is_running(state: Any) -> Bool[Array, ""]:
        return (state.position < until) & (jnp.sum(state.is_done) < min_done)

    return jax.lax.while_loop(is_running, advance, state)


def search_next(step: DecodeStep, state: Any, choose: Choose) -> Any:
    """Add one token to every alive prefix: ``choose`` selects it from the logits of ``step``."""
    logits, after = step(state.alive.last_ids, state.cache)
    cache = after._replace(per_sentence=state.cache.per_sentence)
    # ``choose`` may run under shard_map, so it does not get ``kv_cache``, which keeps its order.
    longer = choose(state._replace(cache=cache._replace(kv_cache=())), logits)
    return longer._replace(cache=cache._replace(per_beam=longer.cache.per_beam))


def choose_tokens(state: BeamState, logits: Float[Array, "B W V"], rules: Rules) -> BeamState:
    """Return the state with one more token on every alive prefix.

    ``state.cache`` is the cache after the step.
    """
    candidates, parents = expand(state, logits, rules)
    is_eos = candidates.last_ids == EOS_ID

    newly = finish(candidates, is_eos, state.position + 1, rules)
    finished = where_sentences(state.is_done, state.finished, best_finished(state.finished, newly, rules.num_results))

    alive_log_probs, survivors = jax.lax.top_k(jnp.where(is_eos, -jnp.inf, candidates.log_probs), rules.beam_width)
    alive = select_beams(candidates, survivors)._replace(log_probs=alive_log_probs)
    cache = state.cache
    if rules.beam_width > 1:
        survived = jnp.take_along_axis(parents, survivors, axis=1)
        cache = cache._replace(per_beam=select_beams(cache.per_beam, survived))

    num_finished = state.num_finished + jnp.sum(newly.log_probs > -jnp.inf, axis=1, dtype=jnp.int32)
    is_done = state.is_done | has_ended(alive, finished, num_finished, state.limits, rules)
    return BeamState(state.position + 1, state.limits, state.forced, alive, finished, num_finished, is_done, cache)


def expand(state: BeamState, logits: Float[Array, "B W V"], rules: Rules) -> tuple[Alive, Int[Array, "B C"]]:
    """Return the ``C = 2 W`` most probable continuations and the beams they come from.

    A beam has one EOS, so at least W of them do not end. PAD and BOS are never among them. EOS is
    the only choice for the last token of a sentence, and a forced token for its position.
    """
    prefixes, logits = state.alive.log_probs, logits.astype(jnp.float32)
    count = min(2 * rules.beam_width, rules.beam_width * logits.shape[2])
    normalizers = normalizers_of(logits)
    best = best_continuations(prefixes, logits, normalizers, count, (PAD_ID, BOS_ID))
    only = jnp.where(state.position + 1 >= state.limits, EOS_ID, PAD_ID)
    if num_forced := state.forced.shape[1]:
        forced = state.forced[:, jnp.minimum(state.position, num_forced - 1)]
        only = jnp.where((state.position < num_forced) & (forced != PAD_ID), forced, only)
    by_only = continuations_by(only, prefixes, logits, normalizers, count)
    parents, tokens, log_probs = where_sentences(only != PAD_ID, by_only, best)
    ids = select_beams(state.alive.ids, parents).at[:, :, state.position].set(tokens)
    return Alive(ids, tokens, log_probs), parents


def finish(candidates: Alive, is_eos: Bool[Array, "B C"], length: Int[Array, ""], rules: Rules) -> Hypotheses:
    """Return the best ``W`` candidates as hypotheses if they end here, else empty hypotheses."""
    best = jax.tree.map(lambda leaf: leaf[:, : rules.beam_width], candidates)
    is_finished = is_eos[:, : rules.beam_width]
    log_probs = jnp.where(is_finished, best.log_probs, -jnp.inf)
    return Hypotheses(
        ids=jnp.where(is_finished[:, :, None], best.ids, PAD_ID),
        scores=log_probs / length_penalty_divisor(length, rules.length_penalty),
        log_probs=log_probs,
        lengths=jnp.where(is_finished, length, 0),
    )


def best_finished(old: Hypotheses, new: Hypotheses, num_results: int) -> Hypotheses:
    """Return the best ``num_results`` of both by score.

    In a tie the older wins, so -inf replaces none.
    """
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), old, new)
    _, index = jax.lax.top_k(both.scores, num_results)
    return select_beams(both, index)


def has_ended(
    alive: Alive, finished: Hypotheses, num_finished: Int[Array, "B"], limits: Int[Array, "B"], rules: Rules
) -> Bool[Array, "B"]:
    """Return whether no prefix can beat the worst kept hypothesis, or ``rules.stop`` holds."""
    best = jnp.max(alive.log_probs, axis=1)
    is_over = best / length_penalty_divisor(limits, rules.length_penalty) <= finished.scores[:, -1]
    if rules.beam_width == 1 or rules.stop == "first_beams":
        is_over |= num_finished >= rules.beam_width
    return is_over


def select_beams(tree: PyTree, index: Int[Array, "B N"]) -> PyTree:
    """Return the leaves ``[B, W, ...]`` of ``tree`` with beam ``index[b, n]`` at ``n``.

    Scalars are unchanged.
    """

    def select(leaf: Array) -> Array:
        if leaf.ndim == 0:
            return leaf
        # XLA's CPU backend runs an indexed gather of whole beams ten times slower.
        return jnp.take_along_axis(leaf, jnp.expand_dims(index, tuple(range(2, leaf.ndim))), axis=1)

    return jax.tree.map(select, tree)


def where_sentences(is_first: Bool[Array, "B"], first: OfSentences, second: OfSentences) -> OfSentences:
    """Return ``first`` for sentences with ``is_first`` and ``second`` for the others."""

    def choose(first_leaf: Array, second_leaf: Array) -> Array:
        return jnp.where(jnp.expand_dims(is_first, tuple(range(1, first_leaf.ndim))), first_leaf, second_leaf)

    return jax.tree.map(choose, first, second)


def length_penalty_divisor(lengths: Int[Array, "..."], alpha: float | Float[Array, ""]) -> Float[Array, "..."]:
    """Return ``((5 + length) / 6) ** alpha``, float32 (Wu et al. 2016, equation 14).

    ``lengths`` count the tokens of a hypothesis, its EOS included. The divisor is 1 for length 1,
    and always for ``alpha`` 0. For ``alpha`` of at least 0 it never falls as hypotheses grow, so
    that search may stop early without error.
    """
    return ((5.0 + lengths) / 6.0) ** alpha
