"""The vectors of a run that learned some, from its run directory and nothing but its run directory."""

from pathlib import Path

import jax
import numpy as np

from transformer_jax.array_types import NUM_SPECIAL_IDS, PyTree
from transformer_jax.checkpoints.run_directory import RunDirectory
from transformer_jax.config import ConfigError, ExperimentConfig, load_run_config
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.tasks.restored_params import restored_params
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.tasks.word_vectors.objective import WordVectorObjective
from transformer_jax.training.sharding import make_mesh
from transformer_jax.word_vectors.vectors import WordVectors


def vectors_of_run(workdir: str | Path, checkpoint: str = "best") -> WordVectors:
    """The vectors of ``checkpoint`` (``best``, ``last`` or a step), a row a word, frequent words first.

    Raises ConfigError when ``workdir`` is not a run of word vectors, CheckpointError when it has no such checkpoint.
    """
    run = RunDirectory(workdir)
    run.require_run()
    config = load_run_config(run.path)
    if config.task != "word_vectors":
        raise ConfigError(f"--workdir: {run.path} is a run of task={config.task}; vectors are of task=word_vectors")
    tokenizer = tokenizers_of_run(run).source
    mesh = make_mesh(config.mesh)
    objective = WordVectorObjective(config, tokenizer.vocabulary_size, mesh)
    params, _ = restored_params(run, objective.init_params, mesh, checkpoint, 1)
    return vectors_of(params, config, tokenizer)


def vectors_of(params: PyTree, config: ExperimentConfig, tokenizer: Tokenizer) -> WordVectors:
    """The table of words, of GloVe the sum of both tables (section 4.2); special ids have no row."""
    tables = ("embedding", "projection") if config.model.kind == "glove" else ("embedding",)
    size = tokenizer.vocabulary_size
    matrix = sum(np.asarray(jax.device_get(params[table]["table"]), np.float32) for table in tables)
    words = [piece.strip() or piece for piece in tokenizer.pieces(range(NUM_SPECIAL_IDS, size))]
    return WordVectors(words, matrix[NUM_SPECIAL_IDS:size])
