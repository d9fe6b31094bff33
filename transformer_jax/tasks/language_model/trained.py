"""A trained language model, restored from its run directory alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
from transformer_jax.tasks.language_model.evaluation import LanguageModelEvaluation
from transformer_jax.tasks.language_model.generator import Generator
from transformer_jax.tasks.language_model.objective import LanguageModelObjective
from transformer_jax.tasks.language_model.task import LanguageModelTask
from transformer_jax.tasks.restored_params import restored_params
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.training.sharding import make_mesh


@dataclass
class TrainedLanguageModel:
    """Tokenizer, model and parameters, and which checkpoints the parameters came from."""

    config: ExperimentConfig
    tokenizer: Tokenizer
    objective: LanguageModelObjective
    params: PyTree
    mesh: Mesh
    steps: tuple[int, ...]
    members: tuple[str, ...] = ()

    @cached_property
    def generator(self) -> Generator:
        """Continues prompts."""
        return Generator(self.objective.model, self.tokenizer, self.config, self.mesh)

    @cached_property
    def task(self) -> LanguageModelTask:
        """Scores splits of the data, which it opens."""
        return LanguageModelTask(self.config, self.tokenizer, self.mesh)

    def evaluate(self, split: str, *, limit: int = 0) -> LanguageModelEvaluation:
        """Scores a split of the data of the run, or its first ``limit`` documents."""
        return self.task.evaluate(self.params, split, limit=limit)


def open_trained_language_model(
    workdir: str | Path, config: ExperimentConfig, *, checkpoint: str = "best", average: int = 1
) -> TrainedLanguageModel:
    """Restores the parameters of ``checkpoint`` (``best``, ``last`` or a step), or of the last ``average`` up to it.

    ``config`` is that of the run, perhaps with other decoding settings. Raises ConfigError when ``workdir`` is not the run of a
    language model, CheckpointError when it has no such checkpoint or too few to average.
    """
    run = RunDirectory(workdir)
    run.require_run()
    if config.task != "language_model":
        raise ConfigError(f"--workdir: {run.path} is a run of task={config.task}; generating takes task=language_model")
    tokenizer = tokenizers_of_run(run).source
    mesh = make_mesh(config.mesh)
    objective = LanguageModelObjective(config, tokenizer.vocabulary_size, mesh)
    params, steps = restored_params(run, objective.init_params, mesh, checkpoint, average)
    return TrainedLanguageModel(config, tokenizer, objective, params, mesh, tuple(steps))


def open_single_language_model(chosen: Sequence[ChosenRun], average: int = 1) -> TrainedLanguageModel:
    """The one run of ``chosen``; raises ConfigError for several: probabilities are averaged in translation only."""
    first, *others = chosen
    if others:
        raise ConfigError(f"--ensemble: {first.workdir} is a run of task=language_model; ensembles are for translation")
    return open_trained_language_model(first.workdir, first.config, checkpoint=first.checkpoint, average=average)
