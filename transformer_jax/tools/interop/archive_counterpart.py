"""An archive, computed with the parameters and settings that are in it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from transformer_jax.tools.interop.archive_export import TOKENIZER
from transformer_jax.tools.interop.archive_reader import golden_checks, read_files, recognizes
from transformer_jax.tools.interop.counterpart import Check, Tolerance, require_same_tokenizers
from transformer_jax.tools.interop.opened_model import Example, OpenedModel

__all__ = ["Counterpart", "recognizes"]


class Counterpart:
    """The model of an archive, decoding as the run does."""

    name = "the archive"
    compares_logits = True
    longest_source = None
    longest_target = None
    tolerance = Tolerance(0.0, 0.0)

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        require_same_tokenizers(folder / TOKENIZER, model)
        self._folder = folder
        found = read_files(folder).opened(model.mesh)
        self._model = replace(found, config=replace(found.config, decoding=model.config.decoding))

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """Logits [T, V] of every target."""
        return self._model.logits(examples)

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """The greedy translation of every source, without EOS; its limit is that of the settings."""
        del longest
        return [target[:-1] for target in self._model.greedy(sources)]

    def checks(self, model: OpenedModel, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """The logits that were stored beside the parameters."""
        del model, texts, examples
        return golden_checks(self._folder, self._model)
