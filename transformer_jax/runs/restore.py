"""A trained run of any task, from its run directory and nothing else."""

from contextlib import closing
from pathlib import Path

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.run_directory import RunDirectory
from transformer_jax.checkpoints.selection import steps_to_average
from transformer_jax.config import ExperimentConfig
from transformer_jax.runtime.distributed import from_first
from transformer_jax.tasks.protocol import Task
from transformer_jax.tasks.registry import build_task
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.training.sharding import make_mesh, placed_shapes


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
    like = placed_shapes(jax.eval_shape(task.init_params, jax.random.key(0)), mesh)
    steps = from_first(lambda: steps_to_average(run, checkpoint, average))
    with closing(Checkpoints(run.checkpoints, read_only=True)) as checkpoints:
        return task, checkpoints.restore_average(steps, like), steps
