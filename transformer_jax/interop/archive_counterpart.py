"""An archive, computed with the parameters and settings that are in it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from transformer_jax.interop.archive_reader import read, recognizes
from transformer_jax.interop.imported_model import ImportedModel
from transformer_jax.interop.opened_model import Example, OpenedModel

__all__ = ["Counterpart", "recognizes"]


class Counterpart:
    """The model of an archive."""

    name = "the archive"
    compares_logits = True
    longest_source = None
    tolerance = 0.0

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        found: ImportedModel = read(folder)
        self._model = replace(model, config=found.config, tokenizers=found.tokenizers, params=found.params())

    def encode(self, texts: Sequence[str]) -> None:
        """None: it takes tokens."""

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """Logits [T, V] of every target."""
        return self._model.logits(examples)

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """The greedy translation of every source, without EOS; its limit is that of the settings."""
        del longest
        texts = [self._model.tokenizers.source.decode(source) for source in sources]
        return [best[0].token_ids[:-1] for best in self._model.translator.translate(self._model.params, texts)]
