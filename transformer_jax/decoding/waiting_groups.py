"""Groups of unfinished sentences of several batches, which share rows."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import AnyArray, Array, Int, PyTree


class Group(NamedTuple):
    """Sentences that are searched together, after ``position`` tokens.

    ``indices`` is -1 in rows that are done. ``state``: the leaves of the search.
    """

    state: list[Array]
    indices: np.ndarray
    position: int
    capacity: int

    @property
    def num_unfinished(self) -> int:
        return int((self.indices >= 0).sum())

    @property
    def is_sparse(self) -> bool:
        """Whether a quarter of the rows are free, so that another group may join."""
        return self.num_unfinished <= len(self.indices) * 3 // 4

    @property
    def num_to_finish(self) -> int:
        """The number of done rows that end a segment.

        A quarter of all rows, or if the group is sparse a quarter of the unfinished ones.
        """
        num_rows = len(self.indices)
        return num_rows - (self.num_unfinished if self.is_sparse else num_rows) * 3 // 4


class WaitingGroups:
    """Sparse groups of one kind of batches, at most one for each position."""

    def __init__(self) -> None:
        self._groups: dict[int, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def num_bytes(self) -> int:
        return sum(leaf.nbytes for group in self._groups.values() for leaf in group.state)

    def pop(self) -> Group:
        """Return the group with the fewest tokens, since the others may join it."""
        return self._groups.pop(min(self._groups))

    def set_aside(self, group: Group, join: Callable[[list[Array], list[Array], np.ndarray], list[Array]]) -> Group:
        """Merge a group with a waiting one, by compiled ``join_rows``.

        Returns a full group if there is one, else an empty one: then all sentences wait.
        """
        nothing = group._replace(indices=np.full_like(group.indices, -1))
        if group.position not in self._groups:
            self._groups[group.position] = group
            return nothing
        # Sentences move from the group that has fewer to the free rows of the other.
        pair = self._groups.pop(group.position), group
        giver, taker = sorted(pair, key=lambda waiting: (len(waiting.indices), waiting.num_unfinished))
        free, moving = np.flatnonzero(taker.indices < 0), np.flatnonzero(giver.indices >= 0)
        count = min(len(free), len(moving))
        free, moving = free[:count], moving[:count]
        rows = np.full(len(taker.indices), -1, np.int32)
        rows[free] = moving
        leaves = join(taker.state, giver.state, rows)
        taken, left = taker.indices.copy(), giver.indices.copy()
        taken[free], left[moving] = giver.indices[moving], -1
        taker = taker._replace(state=leaves[: len(taker.state)], indices=taken)
        giver = giver._replace(state=leaves[len(taker.state) :], indices=left)
        is_full = taker.num_unfinished == len(taker.indices)
        waits = giver if is_full else taker
        if waits.num_unfinished:
            self._groups[group.position] = waits
        return taker if is_full else nothing


def join_rows(
    state: PyTree, other: PyTree, rows: Int[AnyArray, "B"], *, constrain: Callable[[Array], Array]
) -> tuple[PyTree, PyTree]:
    """Move row ``rows[b] >= 0`` of ``other`` into row b of ``state``, and return both.

    The moved rows are done in ``other``. ``constrain``: the sharding constraint of [B, ...].
    """

    def joined(kept: Array, others: Array) -> Array:
        if not kept.ndim:
            return kept
        is_kept = jnp.expand_dims(rows < 0, tuple(range(1, kept.ndim)))
        return constrain(jnp.where(is_kept, kept, jnp.take(others, rows, axis=0, mode="clip")))

    out_of_range = other.is_done.size
    other_is_done = other.is_done.at[jnp.where(rows < 0, out_of_range, rows)].set(True, mode="drop")
    return jax.tree.map(joined, state, other), other._replace(is_done=constrain(other_is_done))
