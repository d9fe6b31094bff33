"""Tasks by name: their settings dataclasses and metrics, and the classes that implement them, imported on first use."""

import pkgutil
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.evaluation import Metric, metrics_of_plugins
from transformer_jax.config.plugins import registered


class TaskSettings(NamedTuple):
    """The facts of a task that need no JAX.

    ``data``, ``batching``, ``decoding``: settings dataclasses; ``model``: settings dataclasses by ``model.kind``, the default
    first. ``selection``: the metric that selects checkpoints, ends runs without improvement, and is optimized by sweeps unless
    they name one of ``others``. ``check``: called with the blocks data, tokenizer, batching, model and decoding, raises
    ConfigError when they are incompatible. ``implementation``: the subclass of ``tasks.task.Task``, or its ``"module:Class"``.
    ``decoder``: the ``"module:Class"`` of the part of the implementation that decodes with a trained run, if it loads less.
    ``uses``: commands and methods of the Python API that a trained run serves, such as ``translate``.
    """

    data: type
    batching: type
    model: Mapping[str, type]
    decoding: type
    selection: Metric
    others: tuple[Metric, ...]
    check: Callable[..., None]
    implementation: str | type = ""
    decoder: str = ""
    uses: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics of the task; validations of a run measure ``ExperimentConfig.metrics``."""
        return (self.selection, *self.others, *(metrics_of_plugins() if self.scores_translations else ()))

    @property
    def scores_translations(self) -> bool:
        """Whether the task selects by BLEU, so that ``evaluation`` chooses its scores."""
        return self.selection.name == "bleu"


LOSSES = (
    Metric("loss", "minimize", defined_by=("tokenizer",)),
    Metric("perplexity", "minimize", digits=3, defined_by=("tokenizer",)),
)


def _settings_of(task: Any) -> TaskSettings:
    """The settings of a registered task class, or of registered settings that name their class."""
    return task if isinstance(task, TaskSettings) else task.settings._replace(implementation=task, decoder="")


TASKS: Mapping[str, TaskSettings] = registered("task", _settings_of)
DEFAULT_TASK = "translation"
BLOCKS_OF_TASKS = ("data", "batching", "model", "decoding")


def require_use(task: str, use: str, problem: str) -> None:
    """Raise ConfigError, with ``problem`` and the tasks that it takes, unless a trained run of ``task`` serves ``use``."""
    if use not in TASKS[task].uses:
        wanted = " or ".join(name for name in TASKS if use in TASKS[name].uses)
        raise ConfigError(f"{problem} takes task={wanted}")


imported = pkgutil.resolve_name
"""The object named by ``"module:NAME"``."""


def kinds_of(task: str, block: str) -> Mapping[str, type]:
    """The settings dataclasses of a block of this task by ``kind``, or under an empty name if there is only one."""
    found = getattr(TASKS[task], block)
    return found if isinstance(found, Mapping) else {"": found}


def any_kind_of(block: str) -> Any:
    """The union of the settings dataclasses of a block over all tasks."""
    kinds = [kind for task in TASKS for kind in kinds_of(task, block).values()]
    return reduce(or_, dict.fromkeys(kinds))
