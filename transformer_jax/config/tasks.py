"""Tasks by name: settings and metrics, and the classes that implement them, imported on use."""

import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Literal, NamedTuple

from transformer_jax.errors import ConfigError
from transformer_jax.registry.plugins import names_of, registered

SCORES = ("bleu", "bleu_lowercase", "bleu_compounds", "bleu_moses", "chrf", "ter", "spbleu")
"""Scores of translations, in table order."""


class Metric(NamedTuple):
    """A metric of validations.

    ``title``: name in tables, if not ``name`` in words. ``digits``: decimals that distinguish runs.
    ``needs``: the setting, if any, that enables it. ``defined_by``: settings, or blocks of them,
    that change its meaning. Runs that differ in them are not comparable by it, as by a loss per
    token with different tokenizers.
    """

    name: str
    direction: Literal["maximize", "minimize"]
    title: str = ""
    digits: int = 4
    needs: str = ""
    defined_by: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.title or self.name.replace("_", " ")

    def text(self, value: float) -> str:
        return f"{value:.{self.digits}f}"

    def score(self, value: float, basis: str) -> str:
        """Return ``BLEU 21.27 (96 of 1,014 sentences, greedy)``, with a ``basis``."""
        return f"{self.label} {self.text(value)}{f' ({basis})' if basis else ''}"

    def heading(self, basis: str) -> str:
        """Return ``BLEU (96 of 1,014 sentences, greedy)``, for scores with this basis."""
        return f"{self.label} ({basis})" if basis else self.label

    @property
    def key(self) -> str:
        """The name in the log of a run: ``validation/bleu``."""
        return f"validation/{self.name}"

    def changed_by(self, keys: Iterable[str]) -> list[str]:
        """Return the settings among ``keys`` that change its meaning."""
        return [key for key in keys if any(f"{key}.".startswith(f"{block}.") for block in self.defined_by)]

    def value_in(self, metrics: Mapping[str, float]) -> float:
        """Return its value among the ``metrics`` of an evaluation. Raises ConfigError."""
        if self.name not in metrics:
            problem = f"the evaluation has no {self.name}; choose one of {', '.join(metrics)}"
            raise ConfigError("evaluation.selection", problem)
        return metrics[self.name]

    def is_better(self, value: float, than: float) -> bool:
        return value > than if self.direction == "maximize" else value < than

    def best_step(self, values: Mapping[int, float]) -> int:
        """Return the step with the best value, in a tie the newest. NaN is the worst."""
        sign = 1 if self.direction == "maximize" else -1
        return max(values, key=lambda step: (not math.isnan(values[step]), sign * values[step], step))


LOSSES = (
    Metric("loss", "minimize", defined_by=("tokenizer",)),
    Metric("perplexity", "minimize", digits=3, defined_by=("tokenizer",)),
)


class TaskSettings(NamedTuple):
    """The facts of a task that need no JAX.

    ``data``, ``batching``, ``decoding``: settings dataclasses; ``model``: settings dataclasses by
    ``model.kind``, the default first. ``selection``: the metric that selects checkpoints, ends runs
    without improvement, and is optimized by sweeps unless they name one of ``others``. ``check``:
    called with the blocks data, tokenizer, batching, model and decoding, raises ConfigError when
    they are incompatible. ``implementation``: the subclass of ``tasks.task.Task``, or its
    ``"module:Class"``. ``decoder``: the ``"module:Class"`` that decodes with a trained run, if it
    loads less. ``uses``: commands and methods of the Python API that a trained run serves, such as
    ``translate``.
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
        """All metrics of the task. Validations of a run measure ``ExperimentConfig.metrics``."""
        parts = registered("metric") if self.scores_translations else {}
        # ``direction = "minimize"`` on a score says that less is better.
        scores = [Metric(name, getattr(parts[name], "direction", "maximize"), digits=2) for name in parts]
        return (self.selection, *self.others, *scores)

    @property
    def scores_translations(self) -> bool:
        """Whether the task selects by BLEU, so that ``evaluation`` selects its scores."""
        return self.selection.name == "bleu"


def score_names(text: str) -> tuple[str, ...]:
    """Return ``"chrf,bleu"`` as ``("bleu", "chrf")``, in table order, then metrics of plugins."""
    listed = [name.strip() for name in text.split(",")]
    return tuple(name for name in (*SCORES, *names_of("metric")) if name in listed)


def _settings_of(task: Any) -> TaskSettings:
    """Return the settings of a registered task class, or registered settings."""
    return task if isinstance(task, TaskSettings) else task.settings._replace(implementation=task, decoder="")


TASKS: Mapping[str, TaskSettings] = registered("task", _settings_of)
DEFAULT_TASK = "translation"
BLOCKS_OF_TASKS = ("data", "batching", "model", "decoding")


def require_use(task: str, use: str, problem: str) -> None:
    """Raise ConfigError, with ``problem``, unless a trained run of ``task`` serves ``use``."""
    if use not in TASKS[task].uses:
        wanted = [name for name in TASKS if use in TASKS[name].uses]
        remedy = f"takes task={' or '.join(wanted)}" if wanted else "takes a task of a tool that is not installed"
        raise ConfigError(f"{problem} {remedy}")


imported = pkgutil.resolve_name
"""The object named by ``"module:NAME"``."""


def kinds_of(task: str, block: str) -> Mapping[str, type]:
    """Return the settings dataclasses of a block of this task by ``kind``, a single one by ""."""
    kinds = getattr(TASKS[task], block)
    return kinds if isinstance(kinds, Mapping) else {"": kinds}


def any_kind_of(block: str) -> Any:
    """Return the union of the settings dataclasses of a block over all tasks."""
    return reduce(or_, dict.fromkeys(kind for task in TASKS for kind in kinds_of(task, block).values()))
