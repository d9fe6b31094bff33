"""Tokenizers, prepared data and compiled programs shared by runs of one process that differ only in hyperparameters."""

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import TypeVar

from jax.sharding import Mesh

from transformer_jax.config import ExperimentConfig, structure_of
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tasks.protocol import Task, TrainingData
from transformer_jax.tasks.registry import TASKS, build_task, new_tokenizers, tokenizer_inputs
from transformer_jax.tasks.run_tokenizers import tokenizers_for_training
from transformer_jax.training.update import Update
from transformer_jax.training.vectorized import SingleUpdate, VectorizedUpdate, vectorized

KEPT = 8

Made = TypeVar("Made")


class TrainingProgram:
    """A task, its training data, and its update, of one run or of several at once; JAX keeps what was compiled of them."""

    def __init__(self, task: Task, mesh: Mesh) -> None:
        self.task = task
        rule = TASKS[task.config.task].update_rule(task)
        self.update = Update(task.config, task.loss, task.init_params, mesh, rule)
        self._updates: dict[int, SingleUpdate | VectorizedUpdate] = {}

    @cached_property
    def training_data(self) -> TrainingData:
        """Tokenized and planned by the first run that asks."""
        return self.task.training_data()

    def update_of(self, runs: int) -> SingleUpdate | VectorizedUpdate:
        """The update of so many runs at once: always the same object, so that nothing is compiled again."""
        if runs not in self._updates:
            self._updates[runs] = vectorized(self.update, runs)
        return self._updates[runs]


class SharedPrograms:
    """The programs of the last ``KEPT`` structures and data that were trained in this process, and as many tokenizers."""

    def __init__(self) -> None:
        self._programs: dict[Hashable, TrainingProgram] = {}
        self._tokenizers: dict[Hashable, TokenizerPair] = {}

    def tokenizers_of(self, config: ExperimentConfig, run: RunDirectory) -> TokenizerPair:
        """Those of the run, or those that it adopts; else what was trained here before on the same text, else new ones."""

        def trained_once(config: ExperimentConfig) -> TokenizerPair:
            return _kept(self._tokenizers, tokenizer_inputs(config), lambda: new_tokenizers(config))

        return tokenizers_for_training(config, run, trained_once)

    def program_of(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh) -> TrainingProgram:
        """One that is here, if it has the same structure, the same text and the same tokenizers, else a new one."""
        # Making a task costs next to nothing before it is used.
        task = build_task(config, tokenizers, mesh)
        key = structure_of(config), mesh, tuple(task.identity.values())
        return _kept(self._programs, key, lambda: TrainingProgram(task, mesh))


def _kept(here: dict[Hashable, Made], key: Hashable, make: Callable[[], Made]) -> Made:
    """The cached value of ``key``, made if missing; beyond ``KEPT`` the least recently used is dropped."""
    here[key] = here.pop(key) if key in here else make()
    while len(here) > KEPT:
        del here[next(iter(here))]
    return here[key]
