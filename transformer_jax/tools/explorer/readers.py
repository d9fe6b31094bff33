"""What the explorer asks of a trained run, for every task that has texts to read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from transformer_jax.config import ConfigError
from transformer_jax.evaluation.word_alignment import GoldAlignment
from transformer_jax.runs.run_directory import ChosenRun
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tools.explorer.head_statistics import HeadStatistics
from transformer_jax.tools.explorer.language_model_reader import LanguageModelReader
from transformer_jax.tools.explorer.page import RunName
from transformer_jax.tools.explorer.reading import Reading
from transformer_jax.tools.explorer.search_tree import Forced, SearchTree
from transformer_jax.tools.explorer.translation_reader import TranslationReader


class Reader(Protocol):
    """A trained run that reads texts."""

    def read(self, text: str, target: str | None = None, *, with_gradients: bool = True) -> Reading:
        """What the run makes of a text; ``target`` is the translation to read, where there is one."""

    def search(self, text: str, alternatives: int) -> SearchTree:
        """The beam search for a text, and what it finds when forced to begin with the best ``alternatives``."""

    def forced(self, text: str, prefix: Sequence[int]) -> Forced:
        """The best hypothesis for a text that begins with these tokens; raises DataError where none can."""

    def statistics(self, split: str, limit: int) -> list[HeadStatistics]:
        """Averages of every head over the first ``limit`` examples of a split of the data of the run."""

    def error_rates(self, pairs: Sequence[tuple[str, str]], gold: Sequence[GoldAlignment], name: str) -> np.ndarray:
        """Alignment error rate [L, H] of every head that attends to the source; ``name`` is the file of ``gold``."""


READERS: dict[str, Callable[[Any], Reader]] = {
    "translation": TranslationReader,
    "language_model": LanguageModelReader,
}
"""By task."""


class OpenedReader(NamedTuple):
    """A restored run and what the page calls it."""

    name: RunName
    reader: Reader


def open_reader(chosen: ChosenRun, average: int) -> OpenedReader:
    """Restores a run, the mean of ``average`` checkpoints; raises ConfigError when its task has no texts to read."""
    task = chosen.config.task
    if task not in READERS:
        raise ConfigError(f"--workdir: {chosen.workdir} is a run of task={task}; explore takes {', '.join(READERS)}")
    trained = open_trained(chosen, average=average)
    steps = ", ".join(f"{step:,}" for step in trained.steps)
    return OpenedReader(RunName(Path(chosen.workdir).name, f"update {steps}"), READERS[task](trained))
