"""A trained run of any task, restored from its run directory, that evaluates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
from transformer_jax.tasks.protocol import Evaluation, Task, Trained
from transformer_jax.tasks.restored_params import restored_params
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.training.sharding import make_mesh


@dataclass(frozen=True)
class TrainedTask:
    """A task and parameters of it, and which checkpoints the parameters came from."""

    task: Task
    params: PyTree
    steps: tuple[int, ...]
    members: tuple[str, ...] = ()

    def evaluate(self, split: str, *, limit: int = 0) -> Evaluation:
        """Scores the parameters on a split, or on its first ``limit`` examples."""
        return self.task.evaluate(self.params, split, limit=limit)


def opens(
    build: Callable[[ExperimentConfig, TokenizerPair, Mesh], Task],
) -> Callable[[Sequence[ChosenRun], int], Trained]:
    """The ``open_trained`` of a task that ``build`` makes and that has no ensembles."""
    return partial(_opened, build)


def _opened(
    build: Callable[[ExperimentConfig, TokenizerPair, Mesh], Task], chosen: Sequence[ChosenRun], average: int = 1
) -> TrainedTask:
    (workdir, config, checkpoint), *others = chosen
    if others:
        raise ConfigError(f"--ensemble: {workdir} is a run of task={config.task}; ensembles are for translation")
    run = RunDirectory(workdir)
    run.require_run()
    mesh = make_mesh(config.mesh)
    task = build(config, tokenizers_of_run(run), mesh)
    params, steps = restored_params(run, task.init_params, mesh, checkpoint, average)
    return TrainedTask(task, params, tuple(steps))
