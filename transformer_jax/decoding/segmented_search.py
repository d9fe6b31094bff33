"""Search in compiled segments, between which arrays grow and finished sentences leave."""

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import AnyArray, Array, Int, PyTree
from transformer_jax.decoding.beam_search import Choose, DecodeStep, Hypotheses, Search, search_next, search_until
from transformer_jax.decoding.source_batches import rows_that_hold
from transformer_jax.decoding.waiting_groups import Group, WaitingGroups, join_rows
from transformer_jax.runtime.kept_programs import Program, ProgramStore
from transformer_jax.sequence_types import DecodeCache

# Tokens of a segment, and of the first arrays.
SEGMENT = 16
FIRST_CAPACITY = 32
CAPACITY_GROWTH = 2
# Rows of a device in the smallest batch of waiting sentences.
MIN_ROWS = 32

OnDone = Callable[[np.ndarray, Hypotheses], None]
"""Takes the indices of sentences that are done, and their hypotheses."""

InitCache = Callable[[PyTree, PyTree, int], DecodeCache]
"""(parameters, inputs, capacity in tokens) to the cache of a model before the first token."""

MakeStep = Callable[[PyTree], DecodeStep]
"""From the parameters of a model to its step."""


class SearchBatch(NamedTuple):
    """Sentences to search: ``indices`` int [B], -1 for padding; ``inputs``, leaves [B, ...].

    ``limits`` int32 [B]: maximum tokens of each row, EOS included, 0 for padding and none above
    ``max_length``. ``forced`` int32 [B, P]: the first tokens of its hypotheses, padded with PAD.
    ``padded_inputs``: inputs of larger shapes. The state is padded with zeros to the shapes it has
    for them, so that batches of different shapes share rows and programs.
    """

    indices: np.ndarray
    inputs: PyTree
    limits: np.ndarray
    max_length: int
    forced: np.ndarray | None = None
    padded_inputs: PyTree | None = None

    @property
    def kind(self) -> tuple:
        """The key of batches that can share rows."""
        leaves = jax.tree.leaves((self.inputs if self.padded_inputs is None else self.padded_inputs, self.forced))
        return self.max_length, *(leaf.shape[1:] for leaf in leaves)


class SearchDevices(NamedTuple):
    """Division of a search over devices.

    ``row_multiple`` divides the rows of every batch. ``constrain`` is the sharding constraint of
    arrays [B, ...], and ``shard_map_rows`` runs a function of them on each device's rows.
    ``replicated`` is the sharding of results for the host. ``threads`` search different batches at
    the same time, and ``waiting_bytes`` of sentences in each wait for free rows. With
    ``few_shapes`` batches keep their rows, and arrays have a capacity of 32 tokens or of
    ``max_length``.
    """

    row_multiple: int = 1
    constrain: Callable[[Array], Array] = lambda rows: rows
    shard_map_rows: Callable[[Choose], Choose] = lambda choose: choose
    replicated: PyTree = None
    threads: int = 1
    waiting_bytes: int = 1 << 31
    few_shapes: bool = False


ONE_DEVICE = SearchDevices()


class Layout(NamedTuple):
    """The structure of a state, its capacity, and shapes of leaves of ``cache`` without rows.

    Between programs a state is a list of leaves: only tracing needs the structure.
    """

    structure: Any
    capacity: int
    cache: tuple[tuple[int, ...], ...]


class SegmentedSearch:
    """Beam search, or another ``search``, over batches of one model, in few compiled programs.

    A segment ends after ``SEGMENT`` tokens, or when a quarter of its sentences are done. Their
    hypotheses are final. Arrays have a capacity of 32, 64, 128, ... tokens. A group with a quarter
    of its rows free waits until sentences of later batches with the same number of tokens fill
    them, or too many bytes wait. At the end waiting sentences are searched in batches of a quarter
    of the rows, a sixteenth ..., but at least ``MIN_ROWS`` a device. So the cost follows the tokens
    generated, not the length limit.
    """

    def __init__(
        self,
        init_cache: InitCache,
        make_step: MakeStep,
        search: Search,
        devices: SearchDevices = ONE_DEVICE,
        store: ProgramStore | None = None,
    ) -> None:
        self._init_cache, self._search, self._devices = init_cache, search, devices
        self._layouts: dict[tuple, Layout] = {}
        self._tracing = threading.Lock()
        choose = devices.shard_map_rows(search.choose)

        def start(
            layout: Layout,
            params: PyTree,
            inputs: PyTree,
            limits: Int[AnyArray, "B"],
            forced: Int[AnyArray, "B P"] | None,
        ) -> PyTree:
            state = search.start(init_cache(params, inputs, layout.capacity), limits, layout.capacity, forced)
            return constrained(_with_capacity(state, layout))

        def run_segment(
            structure: Any, params: PyTree, leaves: list[Array], until: Int[AnyArray, ""], min_done: Int[AnyArray, ""]
        ) -> tuple[PyTree, PyTree]:
            advance = partial(search_next, make_step(params), choose=choose)
            state = constrained(search_until(advance, jax.tree.unflatten(structure, leaves), until, min_done))
            return state, (state.position, state.is_done, search.results(state))

        def resize(layout: Layout, leaves: list[Array], rows: Int[AnyArray, "B"]) -> PyTree:
            leaves = [jnp.take(leaf, rows, axis=0, mode="clip") if leaf.ndim else leaf for leaf in leaves]
            return constrained(_with_capacity(jax.tree.unflatten(layout.structure, leaves), layout))

        def join(
            structure: Any, leaves: list[Array], others: list[Array], rows: Int[AnyArray, "B"]
        ) -> tuple[PyTree, PyTree]:
            state, other = jax.tree.unflatten(structure, leaves), jax.tree.unflatten(structure, others)
            return join_rows(state, other, rows, constrain=devices.constrain)

        def constrained(state: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: devices.constrain(leaf) if leaf.ndim else leaf, state)

        self._start, self._resize = Program(start, store), Program(resize, store)
        self._run_segment = Program(run_segment, store, donated=[1], out_shardings=(None, devices.replicated))
        self._join = Program(join, store, donated=[0, 1])

    def search(
        self, params: PyTree, batches: Iterable[SearchBatch], on_done: OnDone, *, threads: int | None = None
    ) -> None:
        """Search one batch after the other, then the waiting sentences.

        Batches of one kind must follow each other. ``on_done`` receives each sentence with a limit
        above 0 once, as NumPy arrays; a call may have no sentence. ``threads`` (default: of the
        devices) share the batches.
        """
        threads = threads or self._devices.threads
        if threads > 1:
            batches = listed = list(batches)
            if len(listed) > 1:
                # The assignment of batches to threads does not depend on timing.
                shares = [listed[thread::threads] for thread in range(min(threads, len(listed)))]
                search_in_threads([partial(self.search, params, share, threads=1) for share in shares], on_done)
                return
        for _, of_kind in itertools.groupby(batches, lambda batch: batch.kind):
            waiting = WaitingGroups()
            for batch in of_kind:
                if not batch.limits.any():
                    continue
                self._search_group(params, batch, self._first_group(params, batch), waiting, on_done)
                while waiting.num_bytes > self._devices.waiting_bytes:
                    self._search_group(params, batch, waiting.pop(), waiting, on_done)
            # All batches of a kind have the shapes of the last one.
            while waiting:
                group = self._with_fewest_rows(params, batch, waiting.pop())
                self._search_group(params, batch, group, waiting, on_done)

    def _search_group(
        self, params: PyTree, batch: SearchBatch, group: Group, waiting: WaitingGroups, on_done: OnDone
    ) -> None:
        """Search until all sentences are done, or the unfinished ones of a sparse group wait."""
        structure = partial(self._structure, params, batch)
        while group.num_unfinished:
            if group.position == group.capacity:
                capacity = _next_capacity(group.capacity, batch.max_length, self._devices.few_shapes)
                group = self._resized(params, batch, group, np.arange(len(group.indices)), capacity)
            until = min(group.position + SEGMENT, group.capacity)
            bounds = np.array(until, np.int32), np.array(group.num_to_finish, np.int32)
            leaves = self._run_segment(params, group.state, *bounds, static=structure)
            state, results = leaves[: len(group.state)], leaves[len(group.state) :]
            position, is_done, *hypotheses = jax.device_get(results)
            newly = (group.indices >= 0) & (is_done | (position == batch.max_length))
            # Also without a sentence: this call tells a search in a thread to end.
            on_done(group.indices[newly], Hypotheses(*(leaf[newly] for leaf in hypotheses)))
            group = Group(state, np.where(newly, -1, group.indices), int(position), group.capacity)
            if group.num_unfinished and group.is_sparse:
                group = waiting.set_aside(group, partial(self._join, static=structure))

    def _first_group(self, params: PyTree, batch: SearchBatch) -> Group:
        """Return the sentences of a batch before their first token."""
        capacity, inputs = _capacity(FIRST_CAPACITY, batch.max_length), (batch.inputs, batch.limits, batch.forced)
        layout = partial(self._layout, params, batch, capacity)
        state = self._start(params, *inputs, static=layout, key=(batch.kind, capacity))
        return Group(state, np.where(batch.limits > 0, batch.indices, -1), 0, capacity)

    def _with_fewest_rows(self, params: PyTree, batch: SearchBatch, group: Group) -> Group:
        if self._devices.few_shapes:
            return group
        multiple, num_rows = self._devices.row_multiple, len(group.indices)
        kept = multiple * rows_that_hold(max(-(-group.num_unfinished // multiple), MIN_ROWS), num_rows // multiple)
        if kept == num_rows:
            return group
        unfinished_first = np.argsort(group.indices < 0, kind="stable")
        return self._resized(params, batch, group, unfinished_first[:kept], group.capacity)

    def _resized(self, params: PyTree, batch: SearchBatch, group: Group, rows: np.ndarray, capacity: int) -> Group:
        """Return some of the rows, in arrays of another capacity."""
        layout = partial(self._layout, params, batch, capacity)
        state = self._resize(group.state, rows.astype(np.int32), static=layout, key=(batch.kind, capacity))
        return group._replace(state=state, indices=group.indices[rows], capacity=capacity)

    def _structure(self, params: PyTree, batch: SearchBatch) -> Any:
        """Return the structure of a state, the same for all batches and capacities."""
        return self._layout(params, batch, _capacity(FIRST_CAPACITY, batch.max_length)).structure

    def _layout(self, params: PyTree, batch: SearchBatch, capacity: int) -> Layout:
        """Return the layout of a state of this capacity. Traces the model."""
        key = batch.kind, capacity
        # The threads begin with batches of one kind; each would trace the model.
        with self._tracing:
            if key not in self._layouts:
                inputs = batch.inputs if batch.padded_inputs is None else batch.padded_inputs

                def start(params: PyTree, inputs: PyTree) -> PyTree:
                    cache = self._init_cache(params, inputs, capacity)
                    return self._search.start(cache, batch.limits, capacity, batch.forced)

                state = jax.eval_shape(start, params, inputs)
                cache = tuple(leaf.shape[1:] for leaf in jax.tree.leaves(state.cache))
                self._layouts[key] = Layout(jax.tree.structure(state), capacity, cache)
            return self._layouts[key]


class _EndedError(Exception):
    """The caller takes no more results."""


def search_in_threads(searches: Sequence[Callable[[OnDone], None]], on_done: OnDone) -> None:
    """Run each of ``searches(put)`` in a thread, and ``on_done`` in this one. An error ends all."""
    results: SimpleQueue[Any] = SimpleQueue()
    is_over = threading.Event()

    def put(*done: Any) -> None:
        if is_over.is_set():
            raise _EndedError
        results.put(done)

    with ThreadPoolExecutor(len(searches)) as pool:
        for search in searches:
            pool.submit(search, put).add_done_callback(results.put)
        running = len(searches)
        try:
            while running:
                done = results.get()
                if isinstance(done, Future):
                    done.result()
                    running -= 1
                else:
                    on_done(*done)
        finally:
            is_over.set()


def capacities_of(max_length: int, few_shapes: bool = False) -> list[tuple[int, int]]:
    """Return the capacities of a search and their tokens: (32, 32), (64, 32), (150, 86) for 150."""
    capacities = [_capacity(FIRST_CAPACITY, max_length)]
    while capacities[-1] < max_length:
        capacities.append(_next_capacity(capacities[-1], max_length, few_shapes))
    return [(capacity, capacity - before) for before, capacity in itertools.pairwise([0, *capacities])]


def _capacity(wanted: int, max_length: int) -> int:
    """Return ``wanted``, or ``max_length`` if that is at most twice as much."""
    return wanted if wanted * CAPACITY_GROWTH < max_length else max_length


def _next_capacity(capacity: int, max_length: int, few_shapes: bool) -> int:
    return max_length if few_shapes else _capacity(capacity * CAPACITY_GROWTH, max_length)


def _with_capacity(state: PyTree, layout: Layout) -> PyTree:
    """Return the same search in larger arrays, padded with zeros, which are PAD in rows of ids."""
    leaves, structure = jax.tree.flatten(state.cache)
    cache = jax.tree.unflatten(structure, list(map(_padded, leaves, layout.cache)))
    capacity = layout.capacity
    alive = state.alive._replace(ids=_padded(state.alive.ids, (state.alive.ids.shape[1], capacity)))
    finished = state.finished._replace(ids=_padded(state.finished.ids, (state.finished.ids.shape[1], capacity)))
    return state._replace(cache=cache, alive=alive, finished=finished)


def _padded(leaf: Array, trailing: tuple[int, ...]) -> Array:
    missing = [(0, size - old) for old, size in zip(leaf.shape[1:], trailing, strict=True)]
    return jnp.pad(leaf, [(0, 0), *missing]) if any(more for _, more in missing) else leaf
