"""Beam searches of a model as trees of prefixes (kept, dropped or finished), and forced searches.

A search is replayed a token at a time, with every continuation that it weighed. The ordinary search
is unchanged.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, Array, Float, Int, PyTree
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.decoding.beam_search import (
    BeamState,
    Hypotheses,
    Rules,
    beam_search,
    choose_tokens,
    expand,
    length_penalty_divisor,
    start_search,
)
from transformer_jax.decoding.segmented_search import InitCache, MakeStep

KEPT, DROPPED, FINISHED = "kept", "dropped", "finished"
ROOT = -1
# A character has at most this many pieces, its bytes in UTF-8.
MAX_CHARACTER_BYTES = 4
# Most probable next tokens that a kept prefix shows.
NUM_BEST = 10
# Rows of the program of forced searches.
ROWS_AT_ONCE = 8


class TracedStep(NamedTuple):
    """One step of the search of one sentence, with ``C`` candidates, the most probable first.

    A candidate adds a token to the beam ``parents``. ``log_probs`` are of its whole prefix, -inf if
    there is no candidate. PAD and BOS, which no search chooses, have ``best_log_probs`` of -inf.
    """

    tokens: Int[Array, " C"]
    parents: Int[Array, " C"]
    log_probs: Float[Array, " C"]
    best_tokens: Int[Array, "W K"]
    best_log_probs: Float[Array, "W K"]


class SearchTrace:
    """Replays searches with one model, a sentence at a time. Compiled programs are kept."""

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
        """Return the steps of the search for one row, and its hypotheses [1, N, ...]."""
        state = self._start(params, inputs, np.int32(limit), capacity=capacity)
        steps: list[TracedStep] = []
        while not state.is_done[0] and len(steps) < limit:
            state, traced = self._advance(params, state)
            steps.append(jax.device_get(traced))
        return steps, jax.device_get(state.finished)


class Next(NamedTuple):
    """A possible next token, and its log-probability."""

    token: int
    piece: str
    log_prob: float


class Node(NamedTuple):
    """A prefix, by its last token.

    Attributes:
        parent: Index of the prefix without its last token.
        rank: Rank among the candidates of the step.
        status: ``kept`` in the beam, ``dropped``, or ``finished`` (EOS was among the best
            ``beam_width`` candidates).
        score: Log-probability divided by ``divisor``, for a finished prefix.
        divisor: The length penalty.
        following: The most probable next tokens of a kept prefix.
    """

    parent: int
    position: int
    token: int
    piece: str
    log_prob: float
    rank: int
    status: str
    score: float | None = None
    divisor: float | None = None
    following: Sequence[Next] = ()


class Forced(NamedTuple):
    """The result of a search forced to begin with ``prefix``, which text and score include."""

    prefix: tuple[int, ...]
    text: str
    score: float
    log_prob: float


class SearchTree(NamedTuple):
    """All prefixes of a beam search, and the most probable ``first`` tokens."""

    beam_width: int
    length_penalty: float
    first: Sequence[Next]
    nodes: Sequence[Node]
    forced: Sequence[Forced] = ()

    def path(self, number: int) -> list[Node]:
        """Return the nodes from the first one to node ``number``."""
        nodes: list[Node] = []
        while number != ROOT:
            nodes.insert(0, self.nodes[number])
            number = self.nodes[number].parent
        return nodes

    def hypotheses(self) -> list[int]:
        """Return the finished nodes, best score first."""
        finished = [number for number, node in enumerate(self.nodes) if node.status == FINISHED]
        return sorted(finished, key=lambda number: -(self.nodes[number].score or 0.0))

    def alternatives(self, count: int) -> list[tuple[int, ...]]:
        """Return the ``count`` most probable prefixes beside the best hypothesis."""
        rejected: list[tuple[float, tuple[int, ...]]] = []
        before: tuple[int, ...] = ()
        following = self.first
        for node in [node for number in self.hypotheses()[:1] for node in self.path(number)]:
            rejected += [(token.log_prob, (*before, token.token)) for token in following if token.token != node.token]
            before, following = (*before, node.token), node.following
        return [prefix for _, prefix in sorted(rejected, key=lambda pair: -pair[0])[:count]]


def build_tree(
    steps: Sequence[TracedStep], shown: Callable[[list[int]], list[str]], beam_width: int, length_penalty: float
) -> SearchTree:
    """Return the tree of a traced search. ``shown`` returns the texts of consecutive tokens."""
    nodes: list[Node] = []

    def piece_after(parent: int, token: int) -> str:
        tokens = [token]
        while parent != ROOT and len(tokens) < MAX_CHARACTER_BYTES:
            tokens.insert(0, nodes[parent].token)
            parent = nodes[parent].parent
        return shown(tokens)[-1]

    beams: list[int] = [ROOT]
    first: list[Next] = []
    for position, step in enumerate(steps):
        for beam, number in enumerate(beams):
            best = zip(step.best_tokens[beam].tolist(), step.best_log_probs[beam].tolist(), strict=True)
            following = [
                Next(token, piece_after(number, token), log_prob) for token, log_prob in best if math.isfinite(log_prob)
            ]
            if number == ROOT:
                first = following
            else:
                nodes[number] = nodes[number]._replace(following=following)
        kept: list[int] = []
        divisor = float(length_penalty_divisor(jnp.asarray(position + 1), length_penalty))
        for rank in np.flatnonzero(np.isfinite(step.log_probs)).tolist():
            token, log_prob = int(step.tokens[rank]), float(step.log_probs[rank])
            if token == EOS_ID:
                status = FINISHED if rank < beam_width else DROPPED
            else:
                status = KEPT if len(kept) < beam_width else DROPPED
            if status == KEPT:
                kept.append(len(nodes))
            ending = (log_prob / divisor, divisor) if status == FINISHED else (None, None)
            parent = beams[int(step.parents[rank])]
            nodes.append(Node(parent, position, token, piece_after(parent, token), log_prob, rank, status, *ending))
        beams = kept
    return SearchTree(beam_width, length_penalty, first, nodes)


class Searches:
    """Beam searches of one model by ``rules``, with the tokenizer of the target.

    ``inputs``: arrays of one row. ``limit``: maximum number of tokens of a hypothesis.
    ``capacity``: length of its arrays.
    """

    def __init__(self, init_cache: InitCache, make_step: MakeStep, rules: Rules, tokenizer: Tokenizer) -> None:
        self._rules, self._tokenizer = rules, tokenizer
        self._trace = SearchTrace(init_cache, make_step, rules, NUM_BEST)

        def forced(
            params: PyTree, inputs: PyTree, limits: Int[Array, "B"], prefixes: Int[Array, "B P"], *, capacity: int
        ) -> Hypotheses:
            return beam_search(
                make_step(params),
                init_cache(params, inputs, capacity),
                max_lengths=limits,
                max_length=capacity,
                beam_width=rules.beam_width,
                length_penalty=rules.length_penalty,
                num_results=1,
                stop=rules.stop,
                forced=prefixes,
            )

        self._forced = jax.jit(forced, static_argnames="capacity")

    def tree(self, params: PyTree, inputs: PyTree, limit: int, capacity: int, alternatives: int) -> SearchTree:
        """Return the search for ``inputs``, with forced searches for the best ``alternatives``."""
        steps, _ = self._trace(params, inputs, limit, capacity=capacity)
        tree = build_tree(steps, self._shown, self._rules.beam_width, float(self._rules.length_penalty))
        # Others leave no position for EOS.
        prefixes = [
            prefix
            for prefix in tree.alternatives(alternatives)
            if len(prefix) < limit or (len(prefix) == limit and prefix[-1] == EOS_ID)
        ]
        results: list[Forced] = []
        for some in itertools.batched(prefixes, ROWS_AT_ONCE):
            results += self.forced(params, inputs, limit, capacity, some)
        return tree._replace(forced=results)

    def forced(
        self, params: PyTree, inputs: PyTree, limit: int, capacity: int, prefixes: Sequence[tuple[int, ...]]
    ) -> list[Forced]:
        """Return the best hypothesis for each of up to ``ROWS_AT_ONCE`` prefixes."""
        repeated = jax.tree.map(lambda leaf: np.repeat(leaf, ROWS_AT_ONCE, axis=0), inputs)
        limits = np.where(np.arange(ROWS_AT_ONCE) < len(prefixes), limit, 0).astype(np.int32)
        ids = np.full((ROWS_AT_ONCE, capacity), PAD_ID, np.int32)
        for row, prefix in enumerate(prefixes):
            ids[row, : len(prefix)] = prefix
        best = jax.device_get(self._forced(params, repeated, limits, ids, capacity=capacity))
        results = []
        for row, prefix in enumerate(prefixes):
            text = self._tokenizer.decode(best.ids[row, 0, : best.lengths[row, 0]].tolist())
            results.append(Forced(prefix, text, float(best.scores[row, 0]), float(best.log_probs[row, 0])))
        return results

    def _shown(self, tokens: list[int]) -> list[str]:
        return ["</s>"] * len(tokens) if tokens[-1] == EOS_ID else self._tokenizer.shown(tokens)
