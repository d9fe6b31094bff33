"""Beam search in compiled segments: between two of them finished sentences leave, half-empty batches merge, and arrays grow."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Bool, Int, PyTree
from transformer_jax.decoding.beam_search import Choose, DecodeStep, Hypotheses, Search, search_next, search_until
from transformer_jax.decoding.source_batches import rows_that_hold
from transformer_jax.sequence_types import DecodeCache

SEGMENT = 16
FIRST_CAPACITY = 32
CAPACITY_GROWTH = 2
MIN_ROWS = 32

InitCache = Callable[[PyTree, PyTree, int], DecodeCache]
"""The cache of a model before the first token, from parameters, inputs and its capacity, the most tokens it can hold."""

MakeStep = Callable[[PyTree], DecodeStep]
"""From the parameters of a model to its step."""


class SearchBatch(NamedTuple):
    """Sentences to search: ``indices`` int [B], -1 for rows of padding; ``inputs``, leaves [B, ...], for the model.

    ``limits`` int32 [B]: the most tokens of each row, EOS included, 0 for padding and none above ``max_length``. ``forced``
    int32 [B, P]: the tokens that its hypotheses begin with, padded with PAD. ``padded_inputs``: inputs of larger shapes; the
    state is padded with zeros to the shapes it has for them, so that batches of different shapes share rows and programs.
    """

    indices: np.ndarray
    inputs: PyTree
    limits: np.ndarray
    max_length: int
    forced: np.ndarray | None = None
    padded_inputs: PyTree | None = None

    @property
    def kind(self) -> tuple:
        """Batches of one kind can share rows."""
        leaves = jax.tree.leaves((self.inputs if self.padded_inputs is None else self.padded_inputs, self.forced))
        return self.max_length, *(leaf.shape[1:] for leaf in leaves)


class SearchDevices(NamedTuple):
    """How devices share a search.

    ``row_multiple`` divides the rows of every batch. ``constrain`` is the sharding constraint of arrays [B, ...], and
    ``shard_map_rows`` runs a function of them on each device's rows; ``replicated`` is the sharding of results for the host.
    ``threads`` search different batches at the same time; for each, ``waiting_bytes`` of sentences wait for free rows. With
    ``few_shapes`` batches keep their rows, and arrays have a capacity of 32 tokens or of ``max_length``.
    """

    row_multiple: int = 1
    constrain: Callable[[Array], Array] = lambda rows: rows
    shard_map_rows: Callable[[Choose], Choose] = lambda choose: choose
    replicated: PyTree = None
    threads: int = 1
    waiting_bytes: int = 1 << 31
    few_shapes: bool = False


ONE_DEVICE = SearchDevices()


class _Group(NamedTuple):
    """Sentences that are searched together: ``position`` tokens are chosen; ``indices`` is -1 in rows that are done."""

    state: PyTree
    indices: np.ndarray
    position: int
    capacity: int

    @property
    def num_unfinished(self) -> int:
        return int((self.indices >= 0).sum())

    @property
    def is_sparse(self) -> bool:
        """Whether a quarter of the rows are free, so that another group may join."""
        return self.num_unfinished <= _three_quarters(len(self.indices))


class SegmentedSearch:
    """Beam search, or another ``search``, over batches of one model; compiled programs are kept; there are few shapes.

    A segment ends when a quarter of its sentences are done, or after ``SEGMENT`` tokens. Their hypotheses are final; the others
    wait until sentences of later batches with the same number of tokens fill the free rows, or too many bytes wait. What waits
    at the end is searched in batches of a quarter of the rows, a sixteenth ..., but at least ``MIN_ROWS`` a device. Arrays have
    a capacity of 32, 64, 128, ... tokens. So the cost follows the tokens generated, not the length limit.
    """

    def __init__(
        self, init_cache: InitCache, make_step: MakeStep, search: Search, devices: SearchDevices = ONE_DEVICE
    ) -> None:
        self._init_cache, self._devices = init_cache, devices
        self._known_shapes: dict[tuple, tuple] = {}
        self._tracing = threading.Lock()
        choose = devices.shard_map_rows(search.choose)

        def start(
            params: PyTree, inputs: PyTree, limits: Int[Array, "B"], forced: Int[Array, "B P"] | None, *, shapes: tuple
        ) -> PyTree:
            capacity = shapes[0]
            state = search.start(init_cache(params, inputs, capacity), limits, capacity, forced)
            return constrained(_with_capacity(state, shapes))

        def run_segment(
            params: PyTree, state: PyTree, until: Int[Array, ""], min_done: Int[Array, ""]
        ) -> tuple[PyTree, PyTree]:
            step = make_step(params)
            state = constrained(search_until(lambda state: search_next(step, state, choose), state, until, min_done))
            return state, (state.position, state.is_done, search.results(state))

        def join(state: PyTree, other: PyTree, rows: Int[Array, "B"]) -> tuple[PyTree, Bool[Array, "A"]]:
            """``state`` with row ``rows[b] >= 0`` of ``other`` in row b, and which rows of ``other`` are done then."""

            def joined(kept: Array, others: Array) -> Array:
                is_kept = jnp.expand_dims(rows < 0, tuple(range(1, kept.ndim)))
                return jnp.where(is_kept, kept, jnp.take(others, rows, axis=0, mode="clip"))

            out_of_range = other.is_done.size
            other_is_done = other.is_done.at[jnp.where(rows < 0, out_of_range, rows)].set(True, mode="drop")
            both = jax.tree.map(lambda kept, others: joined(kept, others) if kept.ndim else kept, state, other)
            return constrained(both), devices.constrain(other_is_done)

        def resize(state: PyTree, rows: Int[Array, "B"], *, shapes: tuple) -> PyTree:
            state = jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip") if leaf.ndim else leaf, state)
            return constrained(_with_capacity(state, shapes))

        def constrained(state: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: devices.constrain(leaf) if leaf.ndim else leaf, state)

        self._start = jax.jit(start, static_argnames="shapes")
        self._run_segment = jax.jit(run_segment, out_shardings=(None, devices.replicated), donate_argnames="state")
        self._join = jax.jit(join, donate_argnums=0)
        self._resize = jax.jit(resize, static_argnames="shapes")

    def search(self, params: PyTree, batches: Iterable[SearchBatch]) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        """Yields indices with their hypotheses, on the host, when they are done: each sentence with a limit above 0 once.

        Batches of one kind follow each other.
        """
        if self._devices.threads == 1:
            yield from self._search_share(params, batches)
            return
        # The assignment of batches to threads does not depend on timing.
        given, threads = list(batches), self._devices.threads
        shares = [self._search_share(params, given[thread::threads]) for thread in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            running = {pool.submit(next, share, None): share for share in shares}
            while running:
                for each in wait(running, return_when=FIRST_COMPLETED).done:
                    share, found = running.pop(each), each.result()
                    if found is not None:
                        running[pool.submit(next, share, None)] = share
                        yield found

    def _search_share(self, params: PyTree, batches: Iterable[SearchBatch]) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        for _, alike in itertools.groupby(batches, lambda batch: batch.kind):
            waiting: dict[int, _Group] = {}
            for batch in alike:
                indices = np.where(batch.limits > 0, batch.indices, -1)
                if (indices >= 0).any():
                    capacity = _capacity(FIRST_CAPACITY, batch.max_length)
                    shapes = self._shapes(params, batch, capacity)
                    state = self._start(params, batch.inputs, batch.limits, batch.forced, shapes=shapes)
                    yield from self._until_sparse(params, batch, _Group(state, indices, 0, capacity), waiting)
                # The groups with the fewest tokens first: the others may join them.
                while sum(map(_bytes_of, waiting.values())) > self._devices.waiting_bytes:
                    yield from self._until_sparse(params, batch, waiting.pop(min(waiting)), waiting)
            # All batches here have the shapes of this one.
            while waiting:
                group = self._with_fewest_rows(params, batch, waiting.pop(min(waiting)))
                yield from self._until_sparse(params, batch, group, waiting)

    def _until_sparse(
        self, params: PyTree, batch: SearchBatch, group: _Group, waiting: dict[int, _Group]
    ) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        """Searches until the group is sparse; its unfinished sentences then join the groups ``waiting``, by position."""
        while group.num_unfinished:
            if group.position == group.capacity:
                capacity = _next_capacity(group.capacity, batch.max_length, self._devices.few_shapes)
                group = self._resized(params, batch, group, np.arange(len(group.indices)), capacity)
            until = min(group.position + SEGMENT, group.capacity)
            # A segment ends when a quarter of the rows is free: of all rows, or of the unfinished ones of a sparse group.
            num_rows = len(group.indices)
            kept = _three_quarters(group.num_unfinished if group.is_sparse else num_rows)
            state, results = self._run_segment(params, group.state, until, num_rows - kept)
            position, is_done, hypotheses = jax.device_get(results)
            newly = (group.indices >= 0) & (is_done | (position == batch.max_length))
            if newly.any():
                yield group.indices[newly], Hypotheses(*(leaf[newly] for leaf in hypotheses))
            group = _Group(state, np.where(newly, -1, group.indices), int(position), group.capacity)
            if group.num_unfinished and group.is_sparse:
                group = self._set_aside(group, waiting)

    def _set_aside(self, group: _Group, waiting: dict[int, _Group]) -> _Group:
        """Adds a group to the one that waits at its position; returns a full group, or one without sentences."""
        nothing = group._replace(indices=np.full_like(group.indices, -1))
        if group.position not in waiting:
            waiting[group.position] = group
            return nothing
        # Sentences of the group that has fewer move to the free rows of the other.
        fewer, more = sorted(
            (waiting.pop(group.position), group), key=lambda each: (len(each.indices), each.num_unfinished)
        )
        free, moving = np.flatnonzero(more.indices < 0), np.flatnonzero(fewer.indices >= 0)
        count = min(len(free), len(moving))
        free, moving = free[:count], moving[:count]
        rows = np.full(len(more.indices), -1, np.int32)
        rows[free] = moving
        state, fewer_is_done = self._join(more.state, fewer.state, rows)
        joined, rest = more.indices.copy(), fewer.indices.copy()
        joined[free], rest[moving] = fewer.indices[moving], -1
        more = more._replace(state=state, indices=joined)
        fewer = fewer._replace(state=fewer.state._replace(is_done=fewer_is_done), indices=rest)
        is_full = more.num_unfinished == len(more.indices)
        left = fewer if is_full else more
        if left.num_unfinished:
            waiting[group.position] = left
        return more if is_full else nothing

    def _with_fewest_rows(self, params: PyTree, batch: SearchBatch, group: _Group) -> _Group:
        if self._devices.few_shapes:
            return group
        multiple, num_rows = self._devices.row_multiple, len(group.indices)
        kept = multiple * rows_that_hold(max(-(-group.num_unfinished // multiple), MIN_ROWS), num_rows // multiple)
        if kept == num_rows:
            return group
        unfinished_first = np.argsort(group.indices < 0, kind="stable")
        return self._resized(params, batch, group, unfinished_first[:kept], group.capacity)

    def _resized(self, params: PyTree, batch: SearchBatch, group: _Group, rows: np.ndarray, capacity: int) -> _Group:
        """Some of the rows, in arrays of another capacity."""
        state = self._resize(group.state, rows, shapes=self._shapes(params, batch, capacity))
        return group._replace(state=state, indices=group.indices[rows], capacity=capacity)

    def _shapes(self, params: PyTree, batch: SearchBatch, capacity: int) -> tuple:
        """The capacity, and the shape of every leaf of a cache of it, without its rows."""
        key = batch.kind, capacity
        # The threads begin with batches of one kind; both would trace the model.
        with self._tracing:
            if key not in self._known_shapes:
                inputs = batch.inputs if batch.padded_inputs is None else batch.padded_inputs
                cache = jax.eval_shape(
                    lambda params, inputs: self._init_cache(params, inputs, capacity), params, inputs
                )
                self._known_shapes[key] = (capacity, *(leaf.shape[1:] for leaf in jax.tree.leaves(cache)))
            return self._known_shapes[key]


def capacities_of(max_length: int, few_shapes: bool = False) -> list[tuple[int, int]]:
    """The capacities of a search, each with the tokens chosen in it; for 150 (32, 32), (64, 32), (150, 86)."""
    capacity, position = _capacity(FIRST_CAPACITY, max_length), 0
    found = []
    while position < max_length:
        found.append((capacity, capacity - position))
        position = capacity
        capacity = _next_capacity(capacity, max_length, few_shapes)
    return found


def _capacity(wanted: int, max_length: int) -> int:
    """``wanted`` tokens, or all of ``max_length`` where that is less than twice as many."""
    return wanted if wanted * CAPACITY_GROWTH < max_length else max_length


def _next_capacity(capacity: int, max_length: int, few_shapes: bool) -> int:
    return max_length if few_shapes else _capacity(capacity * CAPACITY_GROWTH, max_length)


def _bytes_of(group: _Group) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(group.state))


def _three_quarters(count: int) -> int:
    return count * 3 // 4


def _with_capacity(state: PyTree, shapes: tuple) -> PyTree:
    """The same search in larger arrays, padded with zeros, which are PAD in rows of ids."""
    capacity, *trailing = shapes
    leaves, structure = jax.tree.flatten(state.cache)
    cache = jax.tree.unflatten(structure, [_padded(*each) for each in zip(leaves, trailing, strict=True)])
    alive = state.alive._replace(ids=_padded(state.alive.ids, (state.alive.ids.shape[1], capacity)))
    finished = state.finished._replace(ids=_padded(state.finished.ids, (state.finished.ids.shape[1], capacity)))
    return state._replace(cache=cache, alive=alive, finished=finished)


def _padded(leaf: Array, trailing: tuple[int, ...]) -> Array:
    missing = [(0, size - old) for old, size in zip(leaf.shape[1:], trailing, strict=True)]
    return jnp.pad(leaf, [(0, 0), *missing]) if any(more for _, more in missing) else leaf
