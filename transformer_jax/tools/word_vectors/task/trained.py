"""Word vectors that a run has learned, restored from its run directory alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import (
    ConfigError,
    DataError,
    ExperimentConfig,
    MeshConfig,
    load_run_config,
    without_its_cache,
)
from transformer_jax.config.json_text import is_count, parse_json
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
from transformer_jax.tasks.restored_params import restored_params
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.tools.word_vectors.task.objective import WordVectorObjective, vectors_of
from transformer_jax.tools.word_vectors.task.task import WITHOUT_VECTOR, WordVectorEvaluation, WordVectorTask
from transformer_jax.tools.word_vectors.vectors import WordVectors
from transformer_jax.training.sharding import make_mesh


@dataclass(frozen=True)
class TrainedWordVectors:
    """Tokenizer and parameters, and which checkpoints the parameters came from."""

    config: ExperimentConfig
    tokenizer: Tokenizer
    params: PyTree
    mesh: Mesh
    steps: tuple[int, ...]
    without: tuple[int, ...] = ()
    members: tuple[str, ...] = ()

    @property
    def vectors(self) -> WordVectors:
        """The table of words."""
        return vectors_of(self.params, self.config, self.tokenizer, self.without)

    def evaluate(self, split: str, *, limit: int = 0) -> WordVectorEvaluation:
        """The loss on a split of the data of the run, and its test sets."""
        return WordVectorTask(self.config, self.tokenizer, self.mesh).evaluate(self.params, split, limit=limit)


def open_trained_word_vectors(
    workdir: str | Path, config: ExperimentConfig, *, checkpoint: str = "best", average: int = 1
) -> TrainedWordVectors:
    """Restores the parameters of ``checkpoint`` (``best``, ``last`` or a step), or of the last ``average`` up to it.

    Raises ConfigError when ``workdir`` is not a run of word vectors, CheckpointError when it has no such checkpoint.
    """
    run = RunDirectory(workdir)
    run.require_run()
    if config.task != "word_vectors":
        raise ConfigError(f"--workdir: {run.path} is a run of task={config.task}; vectors are of task=word_vectors")
    tokenizer = tokenizers_of_run(run).source
    mesh = make_mesh(config.mesh)
    objective = WordVectorObjective(config, tokenizer.vocabulary_size, mesh)
    params, steps = restored_params(run, objective.init_params, mesh, checkpoint, average)
    return TrainedWordVectors(config, tokenizer, params, mesh, tuple(steps), _ids_without_vector(run))


def _ids_without_vector(run: RunDirectory) -> tuple[int, ...]:
    """As the run wrote them when it began."""
    if not run.data_report.exists():
        return ()
    try:
        ids = parse_json(run.data_report.read_text(encoding="utf-8")).get(WITHOUT_VECTOR, ())
        is_sound = isinstance(ids, list | tuple) and all(is_count(each) for each in ids)
    except (ValueError, AttributeError):
        is_sound = False
    if not is_sound:
        raise DataError(f"{run.data_report}: not the report on the data of a run")
    return tuple(ids)


def open_word_vectors(chosen: Sequence[ChosenRun], average: int = 1) -> TrainedWordVectors:
    """The one run of ``chosen``; raises ConfigError for several: tables of different runs have nothing in common."""
    first, *others = chosen
    if others:
        raise ConfigError(f"--ensemble: {first.workdir} is a run of task=word_vectors; ensembles are for translation")
    return open_trained_word_vectors(first.workdir, first.config, checkpoint=first.checkpoint, average=average)


def vectors_of_run(workdir: str | Path, checkpoint: str = "best") -> WordVectors:
    """The vectors of a checkpoint of a run; raises what ``open_trained_word_vectors`` does."""
    run = RunDirectory(workdir)
    run.require_run()
    # Reading is possible on other devices than training was.
    config = replace(without_its_cache(load_run_config(run.path)), mesh=MeshConfig())
    return open_trained_word_vectors(workdir, config, checkpoint=checkpoint).vectors
