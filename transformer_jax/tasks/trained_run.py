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
    """A task with parameters, the mean of the checkpoints ``steps``.

    Attributes:
        members: The other models of an ensemble, as ``RUN:UPDATE``.
        training_input: The input of the first run.
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
        return self.task.objective.model

    def remarks(self, name: str, unit: str = "line") -> Remarks:
        """Return empty remarks on an input, which ``name`` and ``unit`` describe."""
        tags = getattr(self.config.data, "required_tags", ())
        # Language models have other limits.
        has_limit = getattr(self.task, "has_targets", True)
        return Remarks(name, self.tokenizers.source, self.training_input, unit, tags, has_limit)

    def remarks_on(self, evaluation: "Evaluation", text: object = None, name: str = "") -> Remarks:
        """Return the remarks on the sources of a split, or of ``text``, which has a ``name``."""
        pairs = getattr(evaluation, "pairs", ())
        remarks = self.remarks(name or evaluation.split, "line" if pairs else "document")
        remarks.read([pair.source for pair in pairs] or list(getattr(text, "sources", ())))
        return remarks

    def evaluate(self: "TrainedRun[Task]", split: str, *, limit: int = 0) -> "Evaluation":
        """Score the parameters on a split of the data, or its first ``limit`` examples (0: all)."""
        if limit < 0:
            raise ConfigError("limit", f"{limit} must be at least 0, which scores all examples")
        return self.task.evaluate(self.params, split, limit=limit)


def open_trained(*choices: ChosenRun, average: int = 1, task: str = "", only_decodes: bool = False) -> TrainedRun[Any]:
    """Restore a run, or the mean of its last ``average`` checkpoints; several are an ensemble.

    An ensemble averages the probabilities of its members; everything else is the first run's.
    Starts JAX, with the compilation cache of the first run. With ``only_decodes`` the task is its
    ``decoder``, if it names one, which has no evaluation. Raises ConfigError if a folder is not a
    run, or of another task than ``task``, or the runs cannot form an ensemble, and CheckpointError
    if there is no such checkpoint, or not enough to average.
    """
    if len(choices) > 1:
        from transformer_jax.tasks.task import task_that

        problem = f"task={choices[0].config.task} has no ensembles"
        task_that(HasEnsembles, choices[0].config, "--ensemble", problem)
    start_jax(choices[0].config.data.cache_directory)
    mesh, runs = make_mesh(choices[0].config.mesh), [RunDirectory(choice.workdir) for choice in choices]
    tasks: list[Any] = []
    for run, choice in zip(runs, choices, strict=True):
        run.require_run()
        if changed := changed_plugins(run.path):
            say(f"{run.path}: {', '.join(changed)} changed since the run loaded it", sys.stderr)
        if task and choice.config.task != task:
            problem = f"{run.path} is a run of task={choice.config.task}"
            raise ConfigError("--workdir", problem, f"this command takes task={task}")
        tasks.append(opened_class(choice.config.task, only_decodes)(choice.config, tokenizers_of_run(run), mesh))
        for side, ours, theirs in zip(("source", "target"), tasks[0].tokenizers, tasks[-1].tokenizers, strict=True):
            if ours.fingerprint() != theirs.fingerprint():
                differ = f"{choice.workdir} and {choices[0].workdir} have different {side} tokenizers"
                remedy = "use runs with the same training text and tokenizer settings"
                raise ConfigError("--ensemble", f"{differ}, so their probabilities are of different tokens", remedy)
    restored = [
        restored_params(run, member.param_shapes(), mesh, choice.checkpoint, average)
        for run, member, choice in zip(runs, tasks, choices, strict=True)
    ]
    if average > 1:
        from transformer_jax.training.schedules import remark_on_average

        for choice, run, (_, averaged) in zip(choices, runs, restored, strict=True):
            progress = CheckpointReader(run.checkpoints).progress(averaged[-1])
            if remark := remark_on_average(choice.config, averaged, progress):
                say(f"{choice.workdir}: {remark}", sys.stderr)
    (params, steps), training_input = restored[0], TrainingInput.of_run(runs[0])
    if len(tasks) == 1:
        return TrainedRun(tasks[0], params, tuple(steps), (), training_input)
    members = [f"{choice.workdir}:{updates[-1]}" for choice, (_, updates) in zip(choices, restored, strict=True)]
    from transformer_jax.models.ensemble import joined_params

    params = joined_params([member for member, _ in restored])
    return TrainedRun(tasks[0].ensemble(tasks[1:]), params, tuple(steps), tuple(members[1:]), training_input)


def opened_class(task: str, only_decodes: bool) -> Any:
    """Return the class of a task, or its ``decoder`` if it names one and ``only_decodes``."""
    if only_decodes and (decoder := TASKS[task].decoder):
        return imported(decoder)
    from transformer_jax.tasks.task import task_class

    return task_class(task)


def restored_params(
    run: RunDirectory, shapes: PyTree, mesh: Mesh, checkpoint: str, average: int
) -> tuple[PyTree, list[int]]:
    """Return the mean parameters of the last ``average`` checkpoints, and their steps.

    ``shapes``: of the parameters of the model. Parameters of loss terms are left out: only training
    uses them. Raises CheckpointError if there is no such checkpoint, or not enough to average.
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
