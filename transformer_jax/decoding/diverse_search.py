"""Diverse beam search: groups of beams, each of which avoids the tokens that the groups before it have just chosen."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, Array, Bool, Float, Int
from transformer_jax.decoding.beam_search import (
    Alive,
    BeamState,
    Hypotheses,
    Rules,
    Search,
    best_finished,
    expand,
    finish,
    has_ended,
    select_beams,
    start_search,
    where_sentences,
)
from transformer_jax.decoding.continuations import normalizers_of
from transformer_jax.sequence_types import DecodeCache


class DiverseRules(NamedTuple):
    """The options of a diverse search, static.

    ``search`` has the options of all beams together, which are ``groups`` of equal size; ``diversity``, at least 0, is the cost
    of a token for each beam of the groups before that chose it.
    """

    search: Rules
    groups: int
    diversity: float

    @property
    def of_group(self) -> Rules:
        """Beam search within a group, which keeps as many hypotheses as it has beams."""
        size = self.search.beam_width // self.groups
        return self.search._replace(beam_width=size, num_results=size)


class DiverseState(NamedTuple):
    """A diverse search so far: as ``BeamState``, the beams and hypotheses group after group.

    ``penalties``: what every alive prefix has paid, which ``alive.log_probs`` do not count; the prefixes of a group are in the
    order of the difference. ``num_finished`` and ``is_group_done`` are of each group.
    """

    position: Int[Array, ""]
    limits: Int[Array, "B"]
    forced: Int[Array, "B P"]
    alive: Alive
    penalties: Float[Array, "B W"]
    finished: Hypotheses
    num_finished: Int[Array, "B G"]
    is_group_done: Bool[Array, "B G"]
    is_done: Bool[Array, "B"]
    cache: DecodeCache


class _Group(NamedTuple):
    """What a step makes of a group: the leaves of its part of the state, and the beams its prefixes come from."""

    alive: Alive
    penalties: Float[Array, "B W"]
    finished: Hypotheses
    num_finished: Int[Array, "B 1"]
    is_done: Bool[Array, "B 1"]
    parents: Int[Array, "B W"]


def diverse_search(rules: DiverseRules) -> Search:
    """Diverse beam search by ``rules``."""
    return Search(
        partial(start_diverse_search, rules=rules),
        partial(advance_groups, rules=rules),
        partial(best_of_groups, rules=rules),
    )


def start_diverse_search(
    cache: DecodeCache,
    limits: Int[Array, "B"],
    capacity: int,
    forced: Int[Array, "B P"] | None = None,
    *,
    rules: DiverseRules,
) -> DiverseState:
    """The state before the first token; see ``start_search``. Raises ValueError for impossible sizes."""
    width, groups = rules.search.beam_width, rules.groups
    if groups < 1 or width % groups:
        raise ValueError(f"groups={groups} must divide beam_width={width}")
    every = start_search(cache, limits, capacity, forced, rules=rules.search._replace(num_results=width))
    is_first = jnp.arange(width) % (width // groups) == 0
    log_probs = jnp.broadcast_to(jnp.where(is_first, 0.0, -jnp.inf), every.alive.log_probs.shape)
    return DiverseState(
        every.position,
        every.limits,
        every.forced,
        every.alive._replace(log_probs=log_probs),
        jnp.zeros_like(log_probs),
        every.finished,
        jnp.zeros((len(limits), groups), jnp.int32),
        jnp.repeat(every.is_done[:, None], groups, axis=1),
        every.is_done,
        every.cache,
    )


def best_of_groups(state: DiverseState, rules: DiverseRules) -> Hypotheses:
    """The best hypotheses of all groups, by the model's own score; of equal ones the earlier group first."""
    _, order = jax.lax.top_k(state.finished.scores, rules.search.num_results)
    return select_beams(state.finished, order)


def advance_groups(state: DiverseState, logits: Float[Array, "B W V"], rules: DiverseRules) -> DiverseState:
    """One more token on every alive prefix, group by group (Vijayakumar et al. 2018, algorithm 1).

    A token costs ``diversity`` for every beam of the groups before that continues with it (Hamming diversity, section 3.2), and
    a prefix keeps its costs. The first group is beam search with its beams alone. Costs only decide which prefixes stay alive:
    the scores of hypotheses are the model's own. A group is done as a beam search is; then it chooses nothing, and costs the
    others nothing. ``state.cache`` is the cache after the step.
    """
    logits = logits.astype(jnp.float32)
    size, (batch_size, _, vocabulary_size) = rules.of_group.beam_width, logits.shape
    normalizers = normalizers_of(logits)
    counts = jnp.zeros((batch_size, vocabulary_size), jnp.float32)
    found = []
    for number in range(rules.groups):
        beams = slice(number * size, (number + 1) * size)
        group = _advance_group(state, number, logits[:, beams], normalizers[:, beams], rules.diversity * counts, rules)
        continues = (group.alive.log_probs > -jnp.inf) & ~group.is_done
        counts = counts.at[jnp.arange(batch_size)[:, None], group.alive.last_ids].add(continues)
        found.append(group._replace(parents=group.parents + beams.start))
    alive, penalties, finished, num_finished, is_done, parents = (
        jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *leaves) for leaves in zip(*found, strict=True)
    )
    cache = state.cache
    if size > 1:
        cache = cache._replace(per_beam=select_beams(cache.per_beam, parents))
    return DiverseState(
        state.position + 1,
        state.limits,
        state.forced,
        alive,
        penalties,
        finished,
        num_finished,
        is_done,
        jnp.all(is_done, axis=1),
        cache,
    )


def _advance_group(
    state: DiverseState,
    number: int,
    logits: Float[Array, "B W V"],
    normalizers: Float[Array, "B W"],
    costs: Float[Array, "B V"],
    rules: DiverseRules,
) -> _Group:
    """One more token on the prefixes of a group, by its own ``logits`` and ``normalizers``, where each token has a cost."""
    of_group = rules.of_group
    size = of_group.beam_width
    beams = slice(number * size, (number + 1) * size)
    before, penalties, finished = jax.tree.map(
        lambda leaf: leaf[:, beams], (state.alive, state.penalties, state.finished)
    )
    num_finished, is_done = state.num_finished[:, number], state.is_group_done[:, number]

    lowered = before._replace(log_probs=before.log_probs - penalties)
    group = BeamState(state.position, state.limits, state.forced, lowered, finished, num_finished, is_done, state.cache)
    candidates, parents = expand(group, logits - costs[:, None], of_group, normalizers)
    order, tokens = candidates.log_probs, candidates.last_ids
    penalties = jnp.take_along_axis(penalties, parents, axis=1) + jnp.take_along_axis(costs, tokens, axis=1)
    candidates = candidates._replace(
        log_probs=jnp.where(order > -jnp.inf, _log_probs(before, logits, normalizers, parents, tokens), -jnp.inf)
    )

    is_eos = tokens == EOS_ID
    newly = finish(candidates, is_eos, state.position + 1, of_group)
    finished = where_sentences(is_done, finished, best_finished(finished, newly, size))
    lowered_log_probs, survivors = jax.lax.top_k(jnp.where(is_eos, -jnp.inf, order), size)
    alive = select_beams(candidates, survivors)
    alive = alive._replace(log_probs=jnp.where(lowered_log_probs > -jnp.inf, alive.log_probs, -jnp.inf))

    num_finished += jnp.sum(newly.log_probs > -jnp.inf, axis=1, dtype=jnp.int32)
    is_done |= has_ended(alive, finished, num_finished, state.limits, of_group)
    penalties, parents = select_beams((penalties, parents), survivors)
    return _Group(alive, penalties, finished, num_finished[:, None], is_done[:, None], parents)


def _log_probs(
    before: Alive,
    logits: Float[Array, "B W V"],
    normalizers: Float[Array, "B W"],
    parents: Int[Array, "B C"],
    tokens: Int[Array, "B C"],
) -> Float[Array, "B C"]:
    """The model's own log-probabilities of prefixes ``before`` with one more token."""
    batch_size, _, vocabulary_size = logits.shape
    log_probs = jnp.take_along_axis(logits.reshape(batch_size, -1), parents * vocabulary_size + tokens, axis=1)
    log_probs -= jnp.take_along_axis(normalizers, parents, axis=1)
    return log_probs + jnp.take_along_axis(before.log_probs, parents, axis=1)
