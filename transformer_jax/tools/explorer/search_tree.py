"""The tree of a beam search: every prefix that it kept, dropped or finished."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.decoding.beam_search import length_penalty_divisor
from transformer_jax.decoding.search_trace import TracedStep

KEPT, DROPPED, FINISHED = "kept", "dropped", "finished"
ROOT = -1


@dataclass(frozen=True)
class Next:
    """A token that may follow a prefix, and the logarithm of its probability."""

    token: int
    piece: str
    log_prob: float


@dataclass(frozen=True)
class Node:
    """A prefix: the number of the node before it, its last token, its log-probability, its rank among the step's candidates.

    ``status``: ``kept`` in the beam, ``dropped``, or ``finished``: its EOS was among the best as many as there are beams.
    ``score``: of a finished one, the log-probability over ``divisor``, the length penalty. ``following``: the most probable
    next tokens of a kept one.
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
    following: list[Next] = field(default_factory=list)


@dataclass(frozen=True)
class Forced:
    """What the search finds when it has to begin with ``prefix``: text, score and log-probability of all of it."""

    prefix: tuple[int, ...]
    text: str
    score: float
    log_prob: float


@dataclass(frozen=True)
class SearchTree:
    """A search with so many beams and this length penalty; ``first`` is what may come first."""

    beam_width: int
    length_penalty: float
    first: list[Next]
    nodes: list[Node]
    forced: list[Forced] = field(default_factory=list)

    def prefix(self, number: int) -> tuple[int, ...]:
        """The tokens of a node, the first one first."""
        tokens: list[int] = []
        while number != ROOT:
            tokens.append(self.nodes[number].token)
            number = self.nodes[number].parent
        return tuple(reversed(tokens))

    def hypotheses(self) -> list[int]:
        """The finished nodes, best score first."""
        finished = [number for number, node in enumerate(self.nodes) if node.status == FINISHED]
        return sorted(finished, key=lambda number: -(self.nodes[number].score or 0.0))

    def alternatives(self, count: int) -> list[tuple[int, ...]]:
        """The ``count`` most probable tokens that the best hypothesis did not take, each after its prefix."""
        if not self.nodes:
            return []
        finished = self.hypotheses()
        best = self.prefix(finished[0]) if finished else ()
        by_prefix = {self.prefix(number): node.following for number, node in enumerate(self.nodes)} | {(): self.first}
        found = [
            (each.log_prob, (*best[:place], each.token))
            for place, token in enumerate(best)
            for each in by_prefix[best[:place]]
            if each.token != token
        ]
        return [prefix for _, prefix in sorted(found, key=lambda pair: -pair[0])[:count]]


def build_tree(
    steps: Sequence[TracedStep], pieces: Callable[[int], str], beam_width: int, length_penalty: float
) -> SearchTree:
    """The tree of a traced search; ``pieces`` shows a token."""
    nodes: list[Node] = []
    beams: list[int] = [ROOT]
    first: list[Next] = []
    for position, step in enumerate(steps):
        for beam, number in enumerate(beams):
            following = first if number == ROOT else nodes[number].following
            following.extend(_next_tokens(step, beam, pieces))
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
            nodes.append(Node(parent, position, token, pieces(token), log_prob, rank, status, *ending))
        beams = kept
    return SearchTree(beam_width, length_penalty, first, nodes)


def _next_tokens(step: TracedStep, beam: int, pieces: Callable[[int], str]) -> list[Next]:
    pairs = zip(step.best_tokens[beam].tolist(), step.best_log_probs[beam].tolist(), strict=True)
    return [Next(token, pieces(token), log_prob) for token, log_prob in pairs if math.isfinite(log_prob)]
