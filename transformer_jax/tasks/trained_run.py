"""A trained run of any task, or an ensemble of several, restored from run directories."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.reader import CheckpointReader
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.tasks import TASKS, imported
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.run_directory.layout import ChosenRun, RunDirectory, changed_plugins
from transformer_jax.run_directory.selection import steps_to_average
from transformer_jax.runtime.distributed import from_first, say
from transformer_jax.runtime.hardware import start_jax
from transformer_jax.tasks.objective import OpenTask
from transformer_jax.tasks.remarks import Remarks, TrainingInput
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.training.sharding import make_mesh, sharded_shapes
from transformer_jax.training.state import without_loss_terms

if TYPE_CHECKING:
    from transformer_jax.models.interface import Module
    from transformer_jax.tasks.task import Evaluation, Task

AnyTask = TypeVar("AnyTask", bound=OpenTask)


@runtime_checkable
class HasEnsembles(Protocol):
    """A task whose models average their probabilities."""

    def ensemble(self, others: Sequence[Any]) -> OpenTask:
        """Return this task with an ensemble of its model and the models of ``others``."""


@dataclass(frozen=True)
class TrainedRun(Generic[AnyTask]):
    """A task with parameters, the mean of the checkpoints ``steps``; ``members``: others of an ensemble, as ``RUN:UPDATE``.

    ``training_input``: of the first run.
    """

    task: AnyTask
    params: PyTree
    steps: tuple[int, ...]
    members: tuple[str, ...] = ()
    training_input: TrainingInput = field(default_factory=TrainingInput)

    @property
    def config(self) -> ExperimentConfig:
        return self.task.config

    @property
    def tokenizers(self) -> TokenizerPair:
        return self.task.tokenizers

    @property
    def mesh(self) -> Mesh:
        return self.task.mesh

    @property
    def model(self) -> "Module":
        """The model that is evaluated, or the ensemble."""
        model: Module = self.task.objective.model
        return model

    def remarks(self, name: str, unit: str = "line") -> Remarks:
        """Return an empty record of what the model never saw in an input, which ``name`` and ``unit`` describe."""
        tags = getattr(self.config.data, "required_tags", ())
        # Language models have limits of their own.
        has_limit = getattr(self.task, "has_targets", True)
        return Remarks(name, self.tokenizers.source, self.training_input, unit, tags, has_limit)

    def evaluate(self: "TrainedRun[Task]", split: str, *, limit: int = 0) -> "Evaluation":
        """Score the parameters on a split of the data of the run, or on its first ``limit`` examples (0: all)."""
        if limit < 0:
            raise ConfigError("limit", f"{limit} must be at least 0, which scores all examples")
        return self.task.evaluate(self.params, split, limit=limit)


def open_trained(*chosen: ChosenRun, average: int = 1, task: str = "", only_decodes: bool = False) -> TrainedRun[Any]:
    """Restores the checkpoint of a run, or the mean of the last ``average`` up to it; several runs become an ensemble.

    An ensemble averages the probabilities of its members; everything else is the first run's.
    Starts JAX, with the compilation cache of the first run. With ``only_decodes`` the task is its
    ``decoder``, if it names one, which has no evaluation.

    Raises ConfigError when a folder is not a run, or not one of ``task`` where that is given, or
    the runs cannot form an ensemble; CheckpointError when there is no such checkpoint, or not
    enough to average.
    """
    if len(chosen) > 1:
        from transformer_jax.tasks.task import task_that

        name = chosen[0].config.task
        task_that(HasEnsembles, chosen[0].config, "--ensemble", f"task={name} has no ensembles")
    start_jax(chosen[0].config.data.cache_directory)
    mesh, runs = make_mesh(chosen[0].config.mesh), [RunDirectory(each.workdir) for each in chosen]
    tasks: list[Any] = []
    for run, each in zip(runs, chosen, strict=True):
        run.require_run()
        if changed := changed_plugins(run.path):
            say(f"{run.path}: {', '.join(changed)} changed since the run loaded it", sys.stderr)
        if task and each.config.task != task:
            raise ConfigError(
                "--workdir", f"{run.path} is a run of task={each.config.task}", f"this command takes task={task}"
            )
        tasks.append(opened_class(each.config.task, only_decodes)(each.config, tokenizers_of_run(run), mesh))
        for side, ours, theirs in zip(("source", "target"), tasks[0].tokenizers, tasks[-1].tokenizers, strict=True):
            if ours.fingerprint() != theirs.fingerprint():
                differ = f"{each.workdir} and {chosen[0].workdir} have different {side} tokenizers"
                remedy = "use runs with the same training text and tokenizer settings"
                raise ConfigError("--ensemble", f"{differ}, so their probabilities are of different tokens", remedy)
    restored = [
        restored_params(run, member.param_shapes(), mesh, each.checkpoint, average)
        for run, member, each in zip(runs, tasks, chosen, strict=True)
    ]
    if average > 1:
        from transformer_jax.training.schedules import remark_on_average

        for each, run, (_, averaged) in zip(chosen, runs, restored, strict=True):
            progress = CheckpointReader(run.checkpoints).progress(averaged[-1])
            if remark := remark_on_average(each.config, averaged, progress):
                say(f"{each.workdir}: {remark}", sys.stderr)
    (params, steps), training_input = restored[0], TrainingInput.of_run(runs[0])
    if len(tasks) == 1:
        return TrainedRun(tasks[0], params, tuple(steps), (), training_input)
    members = [f"{each.workdir}:{updates[-1]}" for each, (_, updates) in zip(chosen, restored, strict=True)]
    from transformer_jax.models.ensemble import joined_params

    params = joined_params([member for member, _ in restored])
    return TrainedRun(tasks[0].ensemble(tasks[1:]), params, tuple(steps), tuple(members[1:]), training_input)


def opened_class(task: str, only_decodes: bool) -> Any:
    """Return the class of a task, or the part of it that decodes where the task names one."""
    if only_decodes and (decoder := TASKS[task].decoder):
        return imported(decoder)
    from transformer_jax.tasks.task import task_class

    return task_class(task)


def restored_params(
    run: RunDirectory, shapes: PyTree, mesh: Mesh, checkpoint: str, average: int
) -> tuple[PyTree, list[int]]:
    """Return the mean parameters of the last ``average`` checkpoints up to ``checkpoint``, on their devices, and their steps.

    ``shapes``: of the parameters of the model.     Parameters of loss terms are left out: only training uses them.

    Raises CheckpointError when there is no such checkpoint, or not enough to average.
    """
    like = sharded_shapes(shapes, mesh)
    # Process 0 chooses for all: a run may be adding checkpoints.
    steps = from_first(lambda: steps_to_average(run, checkpoint, average), "checkpoint")
    params = CheckpointReader(run.checkpoints).restore_average(steps, like)
    return without_loss_terms(params), steps


def with_exact_products(config: ExperimentConfig) -> ExperimentConfig:
    """Return ``config`` with float32 products that are exact on every device, also in decoding."""
    exact = {"compute_dtype": "float32_exact"}
    decoding = replace(config.decoding, **exact) if hasattr(config.decoding, "compute_dtype") else config.decoding
    return replace(config, model=replace(config.model, **exact), decoding=decoding)
