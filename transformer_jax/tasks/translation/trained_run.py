"""A trained model, restored from its run directory alone."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.models.interface import Module
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tasks.restored_params import restored_params
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.tasks.translation.evaluator import Evaluator, Scored, TranslationEvaluation
from transformer_jax.tasks.translation.objective import TranslationObjective
from transformer_jax.tasks.translation.pair_scores import PairScorer
from transformer_jax.tasks.translation.translator import Translator
from transformer_jax.training.sharding import make_mesh


@dataclass
class TrainedRun:
    """Model, tokenizers and parameters, and which checkpoints the parameters came from.

    ``members`` are the other runs of an ensemble, as ``RUN:UPDATE``.
    """

    config: ExperimentConfig
    tokenizers: TokenizerPair
    objective: Scored
    params: PyTree
    mesh: Mesh
    steps: tuple[int, ...]
    members: tuple[str, ...] = ()

    @property
    def model(self) -> Module:
        """The model, or the ensemble."""
        return self.objective.model

    @cached_property
    def translator(self) -> Translator:
        """Decodes with the model."""
        of_model = self.objective.longest_sequence, self.objective.evaluation_dtype
        return Translator(self.model, self.tokenizers, self.config.decoding, self.mesh, *of_model)

    @cached_property
    def scorer(self) -> PairScorer:
        """Scores given translations with the model."""
        return PairScorer(self.model, self.tokenizers, self.config.decoding, self.mesh)

    @cached_property
    def evaluator(self) -> Evaluator:
        """Scores splits of the data."""
        return Evaluator(self.config, self.tokenizers, self.objective, self.mesh)

    def evaluate(self, split: str, *, limit: int = 0) -> TranslationEvaluation:
        """Translates and scores a split of the data of the run, or its first ``limit`` sentences."""
        return self.evaluator.evaluate(self.params, split, limit=limit)


def open_trained_run(
    workdir: str | Path, config: ExperimentConfig, *, checkpoint: str = "best", average: int = 1
) -> TrainedRun:
    """Restores the parameters of ``checkpoint`` (``best``, ``last`` or a step), or of the last ``average`` up to it.

    Where the training scored none itself, ``best`` is what ``evaluate --watch`` scored highest on the validation split.
    ``config`` is that of the run, perhaps with other decoding settings. Raises ConfigError when ``workdir`` is not a run,
    CheckpointError when it has no such checkpoint or too few to average.
    """
    run = RunDirectory(workdir)
    run.require_run()
    if config.task != "translation":
        raise ConfigError(f"--workdir: {run.path} is a run of task={config.task}; this command takes task=translation")
    tokenizers = tokenizers_of_run(run)
    mesh = make_mesh(config.mesh)
    sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
    objective = TranslationObjective(config, *sizes, mesh)
    params, steps = restored_params(run, objective.init_params, mesh, checkpoint, average)
    return TrainedRun(config, tokenizers, objective, params, mesh, tuple(steps))
