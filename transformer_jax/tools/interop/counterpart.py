"""The model elsewhere, as a comparison sees it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import load_tokenizers
from transformer_jax.tools.interop.opened_model import Example, OpenedModel


class Tolerance(NamedTuple):
    """Bounds of the largest and the mean difference of an output, the least share of greedy translations that agree.

    One that differs at a near tie agrees.
    """

    largest: float
    mean: float
    greedy: float = 1.0


class Check(NamedTuple):
    """Something that one format alone can compare: its ``name``, and how many cases of how many agree."""

    name: str
    agreeing: int
    total: int


@runtime_checkable
class Counterpart(Protocol):
    """The model elsewhere. Token ids are those of the run.

    ``longest_source``, ``longest_target``: the most tokens of one, EOS included; None where there is no limit.
    """

    name: str
    compares_logits: bool
    longest_source: int | None
    longest_target: int | None
    tolerance: Tolerance

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """For every target its logits [T, V] if ``compares_logits``, else the log-probability of each token [T]."""

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """The greedy translation of every source, at most ``longest`` tokens, without EOS."""

    def checks(self, model: OpenedModel, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """Further comparisons with the run, of texts and the same texts as tokens."""


def require_same_tokenizers(folder: Path, model: OpenedModel) -> None:
    """Raises DataError unless the tokenizers in ``folder`` are those of the run."""
    for side, theirs, ours in zip(("source", "target"), load_tokenizers(folder), model.tokenizers, strict=True):
        if theirs.fingerprint() != ours.fingerprint():
            sizes = f"{theirs.vocabulary_size:,} pieces there, {ours.vocabulary_size:,} here"
            raise DataError(f"{folder}: its {side} tokenizer is not that of the run ({sizes}): another model")
