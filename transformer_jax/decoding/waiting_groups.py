"""Groups of unfinished sentences of several batches, which share rows: this makes a search over many sentences fast."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import AnyArray, Array, Bool, Int, PyTree


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
        """Return the group with the fewest tokens: the others may join it."""
        return self._groups.pop(min(self._groups))

    def set_aside(self, group: Group) -> Group:
        """Add a group to the one that waits at its position; return a full group, or one without sentences."""
        nothing = group._replace(indices=np.full_like(group.indices, -1))
        if group.position not in self._groups:
            self._groups[group.position] = group
            return nothing
        # Sentences move from the group that has fewer to the free rows of the other.
        pair = self._groups.pop(group.position), group
        giver, taker = sorted(pair, key=lambda each: (len(each.indices), each.num_unfinished))
        free, moving = np.flatnonzero(taker.indices < 0), np.flatnonzero(giver.indices >= 0)
        count = min(len(free), len(moving))
        free, moving = free[:count], moving[:count]
        rows = np.full(len(taker.indices), -1, np.int32)
        rows[free] = moving
        state, giver_is_done = self._join(taker.state, giver.state, rows)
        taken, left = taker.indices.copy(), giver.indices.copy()
        taken[free], left[moving] = giver.indices[moving], -1
        taker = taker._replace(state=state, indices=taken)
        giver = giver._replace(state=giver.state._replace(is_done=giver_is_done), indices=left)
        is_full = taker.num_unfinished == len(taker.indices)
        waits = giver if is_full else taker
        if waits.num_unfinished:
            self._groups[group.position] = waits
        return taker if is_full else nothing


def join_rows(
    state: PyTree, other: PyTree, rows: Int[AnyArray, "B"], *, constrain: Callable[[Array], Array]
) -> tuple[PyTree, Bool[Array, "A"]]:
    """Return ``state`` with row ``rows[b] >= 0`` of ``other`` in row b, and which rows of ``other`` are done then.

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
