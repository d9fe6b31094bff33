"""What runs in one process share when only their hyperparameters differ: tokenizers, prepared data, compiled programs."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from jax.sharding import Mesh

from transformer_jax.checkpoints.run_directory import RunDirectory
from transformer_jax.config import ExperimentConfig, structure_of
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tasks.run_tokenizers import new_tokenizers, tokenizers_for_training, what_they_learn
from transformer_jax.tasks.translation import TranslationTask

KEPT = 8

Made = TypeVar("Made")


class SharedPrograms:
    """The tasks of the last ``KEPT`` structures and data that were trained, with all that they have made so far; and as many
    tokenizers.
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, TranslationTask] = {}
        self._tokenizers: dict[Hashable, TokenizerPair] = {}

    def tokenizers_of(self, config: ExperimentConfig, run: RunDirectory) -> TokenizerPair:
        """Those of the run, or those that it adopts; else what was trained here before on the same text, else new ones."""

        def trained_once(config: ExperimentConfig) -> TokenizerPair:
            return _kept(self._tokenizers, what_they_learn(config), lambda: new_tokenizers(config))

        return tokenizers_for_training(config, run, trained_once)

    def task_of(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh) -> TranslationTask:
        """The task of a run: one that is here, if it has the same structure, the same text and the same tokenizers."""
        # Making one costs next to nothing before it is used.
        new = TranslationTask(config, tokenizers, mesh)
        return _kept(self._tasks, (structure_of(config), mesh, tuple(new.data_identity.values())), lambda: new)


def _kept(here: dict[Hashable, Made], key: Hashable, make: Callable[[], Made]) -> Made:
    """What is here under ``key``, or what is made now; of more than ``KEPT`` those go that were not asked for longest."""
    here[key] = here.pop(key) if key in here else make()
    while len(here) > KEPT:
        del here[next(iter(here))]
    return here[key]
