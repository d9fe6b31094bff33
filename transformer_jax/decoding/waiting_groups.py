"""What makes a search over many sentences fast: sentences of several batches share rows, and batches share cores."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import AnyArray, Array, Bool, Int, PyTree
from transformer_jax.decoding.beam_search import Hypotheses

ReportDone = Callable[[np.ndarray, Hypotheses], None]
"""Takes the indices of sentences that are done, and their hypotheses."""


class Group(NamedTuple):
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

    @property
    def num_to_finish(self) -> int:
        """The number of rows that are done when a segment ends: a quarter of all, or of the unfinished ones if it is sparse."""
        num_rows = len(self.indices)
        return num_rows - _three_quarters(self.num_unfinished if self.is_sparse else num_rows)


def _three_quarters(count: int) -> int:
    return count * 3 // 4


class WaitingGroups:
    """Sparse groups of one kind of batches, at most one for each position; ``compiled_join`` is ``join_rows``."""

    def __init__(self, compiled_join: Callable[[PyTree, PyTree, np.ndarray], tuple[PyTree, Array]]) -> None:
        self._join = compiled_join
        self._groups: dict[int, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def num_bytes(self) -> int:
        return sum(leaf.nbytes for group in self._groups.values() for leaf in jax.tree.leaves(group.state))

    def pop(self) -> Group:
        """The group with the fewest tokens: the others may join it."""
        return self._groups.pop(min(self._groups))

    def set_aside(self, group: Group) -> Group:
        """Adds a group to the one that waits at its position; returns a full group, or one without sentences."""
        nothing = group._replace(indices=np.full_like(group.indices, -1))
        if group.position not in self._groups:
            self._groups[group.position] = group
            return nothing
        # Sentences of the group that has fewer move to the free rows of the other.
        fewer, more = sorted(
            (self._groups.pop(group.position), group), key=lambda each: (len(each.indices), each.num_unfinished)
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
            self._groups[group.position] = left
        return more if is_full else nothing


def join_rows(
    state: PyTree, other: PyTree, rows: Int[AnyArray, "B"], *, constrain: Callable[[Array], Array]
) -> tuple[PyTree, Bool[Array, "A"]]:
    """``state`` with row ``rows[b] >= 0`` of ``other`` in row b, and which rows of ``other`` are done then.

    ``constrain`` is the sharding constraint of arrays [B, ...].
    """

    def joined(kept: Array, others: Array) -> Array:
        if not kept.ndim:
            return kept
        is_kept = jnp.expand_dims(rows < 0, tuple(range(1, kept.ndim)))
        return constrain(jnp.where(is_kept, kept, jnp.take(others, rows, axis=0, mode="clip")))

    out_of_range = other.is_done.size
    other_is_done = other.is_done.at[jnp.where(rows < 0, out_of_range, rows)].set(True, mode="drop")
    return jax.tree.map(joined, state, other), constrain(other_is_done)


class _EndedError(Exception):
    """The search in another thread has failed."""


def report_from_threads(searches: Sequence[Callable[[ReportDone], None]], report: ReportDone) -> None:
    """Runs each of ``searches(report)`` in a thread of its own, and reports in this one; an error ends all of them."""
    reports: SimpleQueue[Any] = SimpleQueue()
    is_over = threading.Event()

    def put(*done: Any) -> None:
        if is_over.is_set():
            raise _EndedError
        reports.put(done)

    def run(search: Callable[[ReportDone], None]) -> None:
        try:
            search(put)
        except BaseException as error:
            reports.put(error)
        else:
            reports.put(None)

    with ThreadPoolExecutor(len(searches)) as pool:
        for search in searches:
            pool.submit(run, search)
        running = len(searches)
        try:
            while running:
                done = reports.get()
                if isinstance(done, BaseException):
                    raise done
                if done is None:
                    running -= 1
                else:
                    report(*done)
        finally:
            is_over.set()
