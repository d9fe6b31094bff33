"""Learned word vectors, restored from a run directory."""

from dataclasses import replace
from pathlib import Path

from transformer_jax.config import DataError, MeshConfig, load_run_config, without_its_cache
from transformer_jax.config.json_text import is_count, parse_json
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tools.word_vectors.task.objective import vectors_of
from transformer_jax.tools.word_vectors.task.task import WITHOUT_VECTOR
from transformer_jax.tools.word_vectors.vectors import WordVectors


def vectors_of_run(workdir: str | Path, checkpoint: str) -> WordVectors:
    """The vectors of a checkpoint of a run, restored on any devices.

    Raises ConfigError if ``workdir`` is not a run of word vectors, CheckpointError if it has no such checkpoint.
    """
    run = RunDirectory(workdir)
    run.require_run()
    config = replace(without_its_cache(load_run_config(run.path)), mesh=MeshConfig())
    trained = open_trained(ChosenRun(str(workdir), config, checkpoint), task="word_vectors")
    return vectors_of(trained.params, config, trained.tokenizers.source, _ids_without_vector(run))


def _ids_without_vector(run: RunDirectory) -> tuple[int, ...]:
    """The ids without a vector that the run recorded when it started; raises DataError if the file is damaged."""
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
