"""A trained language model from its run directory, and nothing but its run directory."""

from dataclasses import dataclass
from pathlib import Path

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.run_directory import RunDirectory
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.tasks.language_model.generator import Generator
from transformer_jax.tasks.language_model.objective import LanguageModelObjective
from transformer_jax.tasks.restored_params import restored_params
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.training.sharding import make_mesh


@dataclass(frozen=True)
class TrainedLanguageModel:
    """Tokenizer, parameters and what generates with them, and which checkpoints the parameters came from."""

    config: ExperimentConfig
    tokenizer: Tokenizer
    generator: Generator
    params: PyTree
    mesh: Mesh
    steps: tuple[int, ...]


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
    generator = Generator(objective.model, tokenizer, config, mesh)
    return TrainedLanguageModel(config, tokenizer, generator, params, mesh, tuple(steps))
