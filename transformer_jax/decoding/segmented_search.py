"""Beam search in compiled segments, between which finished sentences leave the batch and its arrays grow."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.decoding.beam_search import (
    BeamState,
    Hypotheses,
    Rules,
    StepFunction,
    continue_search,
    start_search,
)
from transformer_jax.sequence_types import DecodeCache

SEGMENT = 8
FIRST_ROOM = 32
ROOM_GROWTH = 2
# Each number of rows and each room is a program to compile, which has to be worth it.
SHRINK = 4
FEWEST_ROWS = 8

InitCache = Callable[[PyTree, PyTree, int], DecodeCache]
"""The state of a model before the first token, from parameters and inputs, with room for so many tokens."""

Step = Callable[[PyTree], StepFunction]
"""The step of a model, from its parameters."""


class SegmentedSearch:
    """Beam search over batches of one model; compiled programs are kept, few shapes in all.

    Every ``SEGMENT`` tokens the host reads which sentences are done. Their hypotheses are final; once they are three quarters
    of a batch, it shrinks to a quarter of its rows. Arrays have room for 32, 64, 128, ... tokens. So a search costs what its
    unfinished sentences cost so far, and not what the longest of them may come to.

    ``row_multiple`` divides the rows of every batch; ``whole`` is the sharding of what the host reads.
    """

    def __init__(
        self, init_cache: InitCache, step: Step, rules: Rules, *, row_multiple: int = 1, whole: PyTree = None
    ) -> None:
        self._init_cache, self._row_multiple = init_cache, row_multiple

        def start(params: PyTree, inputs: PyTree, limits: Int[Array, "B"], *, room: int) -> BeamState:
            return start_search(init_cache(params, inputs, room), limits, room, rules)

        def advance(params: PyTree, state: BeamState, until: Int[Array, ""], *, shapes: tuple) -> BeamState:
            return continue_search(step(params), _grown(state, shapes), until, rules)

        self._start = jax.jit(start, static_argnames="room")
        self._advance = jax.jit(advance, static_argnames="shapes")
        self._select = jax.jit(_rows_of)
        self._read = jax.jit(lambda state: (state.is_done, state.finished), out_shardings=whole)
        self._shapes: dict[tuple, tuple] = {}

    def search(
        self, params: PyTree, inputs: PyTree, limits: np.ndarray, most: int
    ) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        """Yields rows of ``inputs`` with their hypotheses, on the host, as they finish: each with a limit above 0 once.

        ``limits`` int32 [B]: the most tokens of each row, EOS included, none of them above ``most``.
        """
        position, room = 0, _room(FIRST_ROOM, most)
        state = self._start(params, inputs, limits, room=room)
        rows, is_waiting = np.arange(len(limits)), limits > 0
        while is_waiting.any():
            position = min(position + SEGMENT, most)
            room = room if position <= room else _room(room * ROOM_GROWTH, most)
            state = self._advance(params, state, position, shapes=self._shapes_for(params, inputs, room))
            is_done, finished = jax.device_get(self._read(state))
            newly = is_waiting & (is_done | (position == most))
            if newly.any():
                yield rows[newly], Hypotheses(*(leaf[newly] for leaf in finished))
            is_waiting &= ~newly
            kept = self._fewest_rows(int(is_waiting.sum()), len(rows))
            if kept < len(rows):
                chosen = np.argsort(~is_waiting, kind="stable")[:kept]
                state, rows, is_waiting = self._select(state, chosen), rows[chosen], is_waiting[chosen]

    def _fewest_rows(self, left: int, rows: int) -> int:
        """``rows``, a quarter of them, a sixteenth ...: the fewest that hold ``left`` and divide over the devices."""
        fewest = max(left, FEWEST_ROWS)
        while fewest <= rows // SHRINK and rows % (SHRINK * self._row_multiple) == 0:
            rows //= SHRINK
        return rows

    def _shapes_for(self, params: PyTree, inputs: PyTree, room: int) -> tuple:
        """The shape of every leaf of the cache, its rows apart, where it has room for so many tokens."""
        key = (*(leaf.shape for leaf in jax.tree.leaves(inputs)), room)
        if key not in self._shapes:
            cache = jax.eval_shape(lambda params, inputs: self._init_cache(params, inputs, room), params, inputs)
            self._shapes[key] = (room, *(leaf.shape[1:] for leaf in jax.tree.leaves(cache)))
        return self._shapes[key]


def _room(wanted: int, most: int) -> int:
    """Room for ``wanted`` tokens, or for all of ``most`` where that is less than twice as many."""
    return wanted if wanted * ROOM_GROWTH < most else most


def _grown(state: BeamState, shapes: tuple) -> BeamState:
    """The same search with more room: zeros after what is there, which is PAD in rows of ids."""
    room, *trailing = shapes
    leaves, structure = jax.tree.flatten(state.cache)
    padded = [_padded(leaf, shape) for leaf, shape in zip(leaves, trailing, strict=True)]
    cache = jax.tree.unflatten(structure, padded)
    alive = state.alive._replace(ids=_padded(state.alive.ids, (state.alive.ids.shape[1], room)))
    finished = state.finished._replace(ids=_padded(state.finished.ids, (state.finished.ids.shape[1], room)))
    return state._replace(cache=cache, alive=alive, finished=finished)


def _padded(leaf: Array, trailing: tuple[int, ...]) -> Array:
    missing = [(0, size - old) for old, size in zip(leaf.shape[1:], trailing, strict=True)]
    return jnp.pad(leaf, [(0, 0), *missing]) if any(more for _, more in missing) else leaf


def _rows_of(state: BeamState, rows: Int[Array, "B"]) -> BeamState:
    """The search of some of the sentences."""
    return jax.tree.map(lambda leaf: leaf if leaf.ndim == 0 else leaf[rows], state)
