"""A run directory whose parameters come from elsewhere than training in it: a mean of checkpoints, another toolkit."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import ExperimentConfig, to_json
from transformer_jax.data.tokenizers import TokenizerPair, save_tokenizers
from transformer_jax.runs.run_directory import RunDirectory, write_json
from transformer_jax.training.state import count_parameters


def write_run_directory(
    folder: Path,
    config: ExperimentConfig,
    tokenizers: TokenizerPair,
    step: int,
    params: PyTree,
    progress: Mapping[str, Any],
    **origin: Any,
) -> RunDirectory:
    """Writes settings, tokenizers, ``run.json`` with ``origin``, and one checkpoint without an optimizer state.

    It can be evaluated, and be the beginning of a new run, but no run resumes from it.
    """
    run = RunDirectory(folder)
    write_json(run.config, to_json(config))
    save_tokenizers(tokenizers, run.tokenizer)
    run.write_run([], config.seed, count_parameters(params), **origin)
    with closing(Checkpoints(run.checkpoints)) as checkpoints:
        checkpoints.save_params(step, params, dict(progress))
    return run
