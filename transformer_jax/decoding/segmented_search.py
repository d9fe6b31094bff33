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
from transformer_jax.decoding.source_batches import fewest_rows
from transformer_jax.sequence_types import DecodeCache

SEGMENT = 8
FIRST_ROOM = 32
ROOM_GROWTH = 2
FEWEST_ROWS = 32

InitCache = Callable[[PyTree, PyTree, int], DecodeCache]
"""The state of a model before the first token, from parameters and inputs, with room for so many tokens."""

Step = Callable[[PyTree], StepFunction]
"""The step of a model, from its parameters."""


class SegmentedSearch:
    """Beam search over batches of one model; compiled programs are kept, few shapes in all.

    Every ``SEGMENT`` tokens the host reads which sentences are done. Their hypotheses are final; once they are three quarters
    of a batch of more than ``FEWEST_ROWS`` rows a device, it shrinks to a quarter. Arrays have room for 32, 64, 128, ...
    tokens. So a search costs what its unfinished sentences cost so far, and not what the longest of them may come to.

    ``row_multiple`` divides the rows of every batch; ``place`` keeps arrays [B, ...] on the devices of their rows; ``whole`` is
    the sharding of what the host reads.
    """

    def __init__(
        self,
        init_cache: InitCache,
        step: Step,
        rules: Rules,
        *,
        row_multiple: int = 1,
        place: Callable[[Array], Array] = lambda rows: rows,
        whole: PyTree = None,
    ) -> None:
        self._init_cache, self._row_multiple = init_cache, row_multiple

        def start(
            params: PyTree, inputs: PyTree, limits: Int[Array, "B"], forced: Int[Array, "B P"] | None, *, room: int
        ) -> BeamState:
            return placed(start_search(init_cache(params, inputs, room), limits, room, rules, forced))

        def advance(params: PyTree, state: BeamState, until: Int[Array, ""]) -> tuple[BeamState, PyTree]:
            state = placed(continue_search(step(params), state, until, rules))
            return state, (state.is_done, state.finished)

        def resized(state: BeamState, rows: Int[Array, "B"], *, shapes: tuple) -> BeamState:
            return placed(_resized(state, rows, shapes))

        def placed(state: BeamState) -> BeamState:
            return jax.tree.map(lambda leaf: place(leaf) if leaf.ndim else leaf, state)

        self._start = jax.jit(start, static_argnames="room")
        self._advance = jax.jit(advance, out_shardings=(None, whole), donate_argnames="state")
        self._resize = jax.jit(resized, static_argnames="shapes")
        self._known_shapes: dict[tuple, tuple] = {}

    def search(
        self, params: PyTree, inputs: PyTree, limits: np.ndarray, most: int, forced: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        """Yields rows of ``inputs`` with their hypotheses, on the host, as they finish: each with a limit above 0 once.

        ``limits`` int32 [B]: the most tokens of each row, EOS included, none of them above ``most``. ``forced`` int32 [B, P]:
        the tokens that its hypotheses begin with, padded with PAD.
        """
        position, room, multiple = 0, _room(FIRST_ROOM, most), self._row_multiple
        state = self._start(params, inputs, limits, forced, room=room)
        rows, is_waiting = np.arange(len(limits)), limits > 0
        while is_waiting.any():
            position = min(position + SEGMENT, most)
            state, read = self._advance(params, state, position)
            is_done, finished = jax.device_get(read)
            newly = is_waiting & (is_done | (position == most))
            if newly.any():
                yield rows[newly], Hypotheses(*(leaf[newly] for leaf in finished))
            is_waiting &= ~newly
            left = max(-(-int(is_waiting.sum()) // multiple), FEWEST_ROWS)
            kept = multiple * fewest_rows(left, len(rows) // multiple)
            is_full = room < min(position + SEGMENT, most)
            if is_waiting.any() and (is_full or kept < len(rows)):
                room = _room(room * ROOM_GROWTH, most) if is_full else room
                chosen = np.argsort(~is_waiting, kind="stable")[:kept]
                state = self._resize(state, chosen, shapes=self._shapes(params, inputs, room))
                rows, is_waiting = rows[chosen], is_waiting[chosen]

    def _shapes(self, params: PyTree, inputs: PyTree, room: int) -> tuple:
        """The room, and the shape of every leaf of a cache with it, without its rows."""
        key = (*(leaf.shape for leaf in jax.tree.leaves(inputs)), room)
        if key not in self._known_shapes:
            cache = jax.eval_shape(lambda params, inputs: self._init_cache(params, inputs, room), params, inputs)
            self._known_shapes[key] = (room, *(leaf.shape[1:] for leaf in jax.tree.leaves(cache)))
        return self._known_shapes[key]


def _room(wanted: int, most: int) -> int:
    """Room for ``wanted`` tokens, or for all of ``most`` where that is less than twice as many."""
    return wanted if wanted * ROOM_GROWTH < most else most


def _resized(state: BeamState, rows: Int[Array, "B"], shapes: tuple) -> BeamState:
    """The search of some of the sentences with more room: zeros after what is there, which is PAD in rows of ids."""
    room, *trailing = shapes
    state = jax.tree.map(lambda leaf: leaf if leaf.ndim == 0 else leaf[rows], state)
    leaves, structure = jax.tree.flatten(state.cache)
    cache = jax.tree.unflatten(structure, [_padded(*each) for each in zip(leaves, trailing, strict=True)])
    alive = state.alive._replace(ids=_padded(state.alive.ids, (state.alive.ids.shape[1], room)))
    finished = state.finished._replace(ids=_padded(state.finished.ids, (state.finished.ids.shape[1], room)))
    return state._replace(cache=cache, alive=alive, finished=finished)


def _padded(leaf: Array, trailing: tuple[int, ...]) -> Array:
    missing = [(0, size - old) for old, size in zip(leaf.shape[1:], trailing, strict=True)]
    return jnp.pad(leaf, [(0, 0), *missing]) if any(more for _, more in missing) else leaf
