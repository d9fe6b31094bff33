"""A trained run of any task, from its run directory and nothing else."""

from pathlib import Path

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.run_directory import RunDirectory
from transformer_jax.config import ExperimentConfig
from transformer_jax.tasks.protocol import Task
from transformer_jax.tasks.registry import build_task
from transformer_jax.tasks.restored_params import restored_params
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.training.sharding import make_mesh


def restore_params(
    workdir: str | Path, config: ExperimentConfig, checkpoint: str = "best", average: int = 1
) -> tuple[Task, PyTree, list[int]]:
    """The task, the parameters of ``checkpoint`` (or of the last ``average`` up to it), and the steps they come from.

    Raises ConfigError when ``workdir`` is not a run, CheckpointError when it has no such checkpoint or too few to average.
    """
    run = RunDirectory(workdir)
    run.require_run()
    mesh = make_mesh(config.mesh)
    task = build_task(config, tokenizers_of_run(run), mesh)
    return task, *restored_params(run, task.init_params, mesh, checkpoint, average)
