"""What trainings in one process share when they differ only in numbers: the data, prepared once, and every compiled program."""

from jax.sharding import Mesh

from transformer_jax.config import ExperimentConfig, structure_of
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tasks.translation import TranslationTask

KEPT = 8


class SharedPrograms:
    """The tasks of the last ``KEPT`` structures and data that were trained, with all that they have made so far."""

    def __init__(self) -> None:
        self._tasks: dict[tuple, TranslationTask] = {}

    def task_of(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh) -> TranslationTask:
        """The task of a training: one that is here, if it has the same structure, the same text and the same tokenizers."""
        # Making one costs next to nothing before it is used.
        new = TranslationTask(config, tokenizers, mesh)
        key = structure_of(config), mesh, tuple(new.data_identity.values())
        self._tasks[key] = self._tasks.pop(key, new)
        while len(self._tasks) > KEPT:
            del self._tasks[next(iter(self._tasks))]
        return self._tasks[key]
