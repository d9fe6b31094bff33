"""Beam search in compiled segments, between which finished sentences leave, the others are put together, and arrays grow."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Bool, Int, PyTree
from transformer_jax.decoding.beam_search import Choose, Hypotheses, StepFunction, search_next, search_until
from transformer_jax.decoding.parallel_search import in_parallel
from transformer_jax.decoding.search_kind import BEAM_SEARCH, SearchKind
from transformer_jax.decoding.source_batches import fewest_rows
from transformer_jax.sequence_types import DecodeCache

SEGMENT = 16
FIRST_ROOM = 32
ROOM_GROWTH = 2
FEWEST_ROWS = 32

InitCache = Callable[[PyTree, PyTree, int], DecodeCache]
"""The state of a model before the first token, from parameters and inputs, with room for so many tokens."""

Step = Callable[[PyTree], StepFunction]
"""The step of a model, from its parameters."""


class SearchBatch(NamedTuple):
    """Sentences to search: ``names`` int [B], theirs or -1 for rows of padding; ``inputs``, leaves [B, ...], for the model.

    ``limits`` int32 [B]: the most tokens of each row, EOS included, 0 for padding and none above ``most``. ``forced`` int32
    [B, P]: the tokens that its hypotheses begin with, padded with PAD. ``like``: inputs of larger shapes; the state is padded
    with zeros to what it would be for them, so that batches of different shapes share rows and programs.
    """

    names: np.ndarray
    inputs: PyTree
    limits: np.ndarray
    most: int
    forced: np.ndarray | None = None
    like: PyTree | None = None

    @property
    def padded(self) -> PyTree:
        """Inputs of the shapes that the state is for."""
        return self.inputs if self.like is None else self.like

    @property
    def kind(self) -> tuple:
        """Batches of one kind can share rows."""
        return self.most, *(leaf.shape[1:] for leaf in jax.tree.leaves((self.padded, self.forced)))


class Unfinished(NamedTuple):
    """A search that goes on: ``position`` tokens are chosen, in arrays with ``room``; ``names`` is -1 where it is done."""

    state: PyTree
    names: np.ndarray
    position: int
    room: int

    @property
    def num_left(self) -> int:
        """Sentences that are not done."""
        return int((self.names >= 0).sum())


class SegmentedSearch:
    """Beam search over batches of one model, or ``kind`` of it by its ``rules``; compiled programs are kept, few shapes in all.

    A segment ends when a quarter of its sentences are done, or after ``SEGMENT`` tokens. The hypotheses of those are final;
    the others wait until sentences of further batches that have as many tokens fill the free rows. What waits at the end is
    searched in batches of a quarter of the rows, a sixteenth ..., but of ``FEWEST_ROWS`` a device. Arrays have room for 32, 64,
    128, ... tokens. So a search costs what its unfinished sentences cost so far, and not what the longest of them may come to.

    ``row_multiple`` divides the rows of every batch; ``place`` keeps arrays [B, ...] on the devices of their rows, and
    ``on_own_rows`` makes a function of them one that each device runs on its rows; ``whole`` is the sharding of what the host
    reads. ``threads`` search batches of their own at the same time. With ``few_shapes`` batches keep their rows, and arrays
    have room for 32 tokens or for all.
    """

    def __init__(
        self,
        init_cache: InitCache,
        step: Step,
        rules: Any,
        *,
        kind: SearchKind = BEAM_SEARCH,
        row_multiple: int = 1,
        place: Callable[[Array], Array] = lambda rows: rows,
        on_own_rows: Callable[[Choose], Choose] = lambda choose: choose,
        whole: PyTree = None,
        threads: int = 1,
        few_shapes: bool = False,
    ) -> None:
        self._init_cache, self._row_multiple, self._threads = init_cache, row_multiple, threads
        self._few_shapes = few_shapes
        choose = on_own_rows(partial(kind.choose, rules=rules))

        def start(
            params: PyTree, inputs: PyTree, limits: Int[Array, "B"], forced: Int[Array, "B P"] | None, *, shapes: tuple
        ) -> PyTree:
            room = shapes[0]
            return placed(_with_room(kind.start(init_cache(params, inputs, room), limits, room, rules, forced), shapes))

        def advance(
            params: PyTree, state: PyTree, until: Int[Array, ""], enough: Int[Array, ""]
        ) -> tuple[PyTree, PyTree]:
            model_step = step(params)
            state = placed(search_until(lambda state: search_next(model_step, state, choose), state, until, enough))
            return state, (state.position, state.is_done, kind.results(state, rules))

        def joined(state: PyTree, other: PyTree, rows: Int[Array, "B"]) -> tuple[PyTree, Bool[Array, "A"]]:
            nowhere = other.is_done.size
            other_is_done = other.is_done.at[jnp.where(rows < 0, nowhere, rows)].set(True, mode="drop")
            return placed(_with_rows(state, other, rows)), place(other_is_done)

        def resized(state: PyTree, rows: Int[Array, "B"], *, shapes: tuple) -> PyTree:
            state = jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip") if leaf.ndim else leaf, state)
            return placed(_with_room(state, shapes))

        def placed(state: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: place(leaf) if leaf.ndim else leaf, state)

        self._start = jax.jit(start, static_argnames="shapes")
        self._advance = jax.jit(advance, out_shardings=(None, whole), donate_argnames="state")
        self._join = jax.jit(joined, donate_argnums=0)
        self._resize = jax.jit(resized, static_argnames="shapes")
        self._known_shapes: dict[tuple, tuple] = {}
        self._one_at_a_time = threading.Lock()

    def search(self, params: PyTree, batches: Iterable[SearchBatch]) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        """Yields names with their hypotheses, on the host, as they finish: each with a limit above 0 once.

        Batches of one kind follow each other.
        """
        return in_parallel(partial(self._searched, params), batches, self._threads)

    def _searched(self, params: PyTree, batches: Iterable[SearchBatch]) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        for _, alike in itertools.groupby(batches, lambda batch: batch.kind):
            waiting: dict[int, Unfinished] = {}
            for batch in alike:
                names, room = np.where(batch.limits > 0, batch.names, -1), _room(FIRST_ROOM, batch.most)
                if (names >= 0).any():
                    shapes = self._shapes(params, batch.padded, room)
                    state = self._start(params, batch.inputs, batch.limits, batch.forced, shapes=shapes)
                    yield from self._until_few(params, batch, Unfinished(state, names, 0, room), waiting)
            # Those with the fewest tokens first: the others may join them.
            while waiting:
                found = self._with_fewest_rows(params, batch, waiting.pop(min(waiting)))
                yield from self._until_few(params, batch, found, waiting)

    def _until_few(
        self, params: PyTree, batch: SearchBatch, found: Unfinished, waiting: dict[int, Unfinished]
    ) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        """Searches on until too few are left for a batch; these are then among those ``waiting``."""
        while found.num_left:
            until = min(found.position + SEGMENT, batch.most)
            if until > found.room == found.position:
                room = batch.most if self._few_shapes else _room(found.room * ROOM_GROWTH, batch.most)
                found = self._resized(params, batch, found, np.arange(len(found.names)), room)
            size = len(found.names)
            enough = _few(size) if found.num_left > _few(size) else _few(found.num_left)
            state, read = self._advance(params, found.state, min(until, found.room), enough)
            position, is_done, finished = jax.device_get(read)
            newly = (found.names >= 0) & (is_done | (position == batch.most))
            if newly.any():
                yield found.names[newly], Hypotheses(*(leaf[newly] for leaf in finished))
            found = Unfinished(state, np.where(newly, -1, found.names), int(position), found.room)
            if 0 < found.num_left <= _few(size):
                found = _put_aside(self._join, found, waiting)

    def _with_fewest_rows(self, params: PyTree, batch: SearchBatch, found: Unfinished) -> Unfinished:
        if self._few_shapes:
            return found
        multiple, size = self._row_multiple, len(found.names)
        kept = multiple * fewest_rows(max(-(-found.num_left // multiple), FEWEST_ROWS), size // multiple)
        order = np.argsort(found.names < 0, kind="stable")
        return found if kept == size else self._resized(params, batch, found, order[:kept], found.room)

    def _resized(
        self, params: PyTree, batch: SearchBatch, found: Unfinished, rows: np.ndarray, room: int
    ) -> Unfinished:
        """Some of the rows, in arrays with more room."""
        state = self._resize(found.state, rows, shapes=self._shapes(params, batch.padded, room))
        return found._replace(state=state, names=found.names[rows], room=room)

    def _shapes(self, params: PyTree, inputs: PyTree, room: int) -> tuple:
        """The room, and the shape of every leaf of a cache with it, without its rows."""
        key = (*(leaf.shape[1:] for leaf in jax.tree.leaves(inputs)), room)
        with self._one_at_a_time:
            if key not in self._known_shapes:
                cache = jax.eval_shape(lambda params, inputs: self._init_cache(params, inputs, room), params, inputs)
                self._known_shapes[key] = (room, *(leaf.shape[1:] for leaf in jax.tree.leaves(cache)))
            return self._known_shapes[key]


def rooms_of(most: int, few_shapes: bool = False) -> list[tuple[int, int]]:
    """Rooms of a search for ``most`` tokens, with the tokens chosen in each; for 150 (32, 32), (64, 32), (150, 86)."""
    room, position = _room(FIRST_ROOM, most), 0
    found = []
    while position < most:
        found.append((room, min(room, most) - position))
        position = min(room, most)
        room = most if few_shapes else _room(room * ROOM_GROWTH, most)
    return found


def _room(wanted: int, most: int) -> int:
    """Room for ``wanted`` tokens, or for all of ``most`` where that is less than twice as many."""
    return wanted if wanted * ROOM_GROWTH < most else most


def _few(count: int) -> int:
    """So many sentences of ``count`` leave so many rows free that others should have them."""
    return count * 3 // 4


def _put_aside(join: Callable, found: Unfinished, waiting: dict[int, Unfinished]) -> Unfinished:
    """Adds to those that wait at the same position; returns a full batch of them, or one with none."""
    none = found._replace(names=np.full_like(found.names, -1))
    if found.position not in waiting:
        waiting[found.position] = found
        return none
    # Sentences of the batch that has fewer move to the free rows of the other.
    other, base = sorted((waiting.pop(found.position), found), key=lambda each: (len(each.names), each.num_left))
    free, moving = np.flatnonzero(base.names < 0), np.flatnonzero(other.names >= 0)
    count = min(len(free), len(moving))
    rows = np.full(len(base.names), -1, np.int32)
    rows[free[:count]] = moving[:count]
    state, other_is_done = join(base.state, other.state, rows)
    base = base._replace(state=state, names=np.where(rows < 0, base.names, other.names[rows]))
    has_moved = np.isin(np.arange(len(other.names)), moving[:count])
    names = np.where(has_moved, -1, other.names)
    other = other._replace(state=other.state._replace(is_done=other_is_done), names=names)
    is_full = base.num_left == len(base.names)
    if (rest := other if is_full else base).num_left:
        waiting[found.position] = rest
    return base if is_full else none


def _with_rows(state: PyTree, other: PyTree, rows: Int[Array, "B"]) -> PyTree:
    """The search of ``state``, with the sentence of row ``rows[b]`` of ``other`` in place b where that is not negative."""

    def chosen(own: Array, others: Array) -> Array:
        if own.ndim == 0:
            return own
        is_own = jnp.expand_dims(rows < 0, tuple(range(1, own.ndim)))
        return jnp.where(is_own, own, jnp.take(others, rows, axis=0, mode="clip"))

    return jax.tree.map(chosen, state, other)


def _with_room(state: PyTree, shapes: tuple) -> PyTree:
    """The same search with more room: zeros after what is there, which is PAD in rows of ids."""
    room, *trailing = shapes
    leaves, structure = jax.tree.flatten(state.cache)
    cache = jax.tree.unflatten(structure, [_padded(*each) for each in zip(leaves, trailing, strict=True)])
    alive = state.alive._replace(ids=_padded(state.alive.ids, (state.alive.ids.shape[1], room)))
    finished = state.finished._replace(ids=_padded(state.finished.ids, (state.finished.ids.shape[1], room)))
    return state._replace(cache=cache, alive=alive, finished=finished)


def _padded(leaf: Array, trailing: tuple[int, ...]) -> Array:
    missing = [(0, size - old) for old, size in zip(leaf.shape[1:], trailing, strict=True)]
    return jnp.pad(leaf, [(0, 0), *missing]) if any(more for _, more in missing) else leaf
