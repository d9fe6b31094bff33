"""Vocabularies of other toolkits in the order of this package: PAD, BOS, EOS and UNK first."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID

NOWHERE = -1
# So low that it is never chosen, and no other probability feels it.
MISSING_LOGIT = -1e9


@dataclass(frozen=True, eq=False)
class VocabularyOrder:
    """``theirs``: for every id here the id there, ``NOWHERE`` for one that they lack."""

    theirs: np.ndarray

    @property
    def size_there(self) -> int:
        """Number of their ids: each has one here."""
        return len(np.unique(self.theirs[self.theirs != NOWHERE]))

    @property
    def is_complete(self) -> bool:
        """Whether every id here is one there, and another one for each."""
        return bool(np.all(self.theirs != NOWHERE)) and not len(self.repeated)

    @cached_property
    def repeated(self) -> np.ndarray:
        """Ids here whose id there also has a later one here."""
        last = {int(there): i for i, there in enumerate(self.theirs)}
        return np.array(
            [i for i, there in enumerate(self.theirs) if last[int(there)] != i and there != NOWHERE], np.int64
        )

    def rows(self, table: np.ndarray, missing: float = 0.0) -> np.ndarray:
        """Rows of theirs in the order of this package."""
        missing_row = np.full((1, *table.shape[1:]), missing, table.dtype)
        return np.concatenate([table, missing_row])[self.theirs]

    def to_theirs(self, ids: Sequence[int]) -> list[int]:
        """Ids there."""
        return [int(self.theirs[i]) for i in ids]

    def to_ours(self, ids: Sequence[int]) -> list[int]:
        """Ids here; one that has none here is UNK."""
        return [self._ours.get(int(i), UNK_ID) for i in ids]

    def logits(self, theirs: np.ndarray) -> np.ndarray:
        """Their logits [..., V] in the order of this package; an id that they lack, or that comes again, is never chosen."""
        filled = np.concatenate([theirs, np.full((*theirs.shape[:-1], 1), MISSING_LOGIT, theirs.dtype)], axis=-1)
        ours = filled[..., self.theirs]
        ours[..., self.repeated] = MISSING_LOGIT
        return ours

    @cached_property
    def _ours(self) -> dict[int, int]:
        """Ids here by ids there."""
        return {int(there): here for here, there in enumerate(self.theirs) if there != NOWHERE}


def vocabulary_order(size: int, *, pad: int, start: int, eos: int, unk: int) -> VocabularyOrder:
    """``pad`` of theirs is PAD here and ``start``, with which their decoder begins, BOS; all others follow in their order.

    An id there that is already one of the others has no PAD here; one that both begins and ends is BOS and EOS here.
    """
    special = {BOS_ID: start, EOS_ID: eos, UNK_ID: unk, PAD_ID: NOWHERE if pad in (start, eos, unk) else pad}
    theirs = [special[i] for i in sorted(special)]
    return VocabularyOrder(np.array(theirs + [i for i in range(size) if i not in theirs]))
