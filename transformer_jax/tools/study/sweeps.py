"""The definition of a sweep: a recipe, settings that vary, a metric, a number of trials."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from transformer_jax.config import ConfigError, ExperimentConfig, Metric, resolve
from transformer_jax.config.conversion import read_value, type_of
from transformer_jax.config.tasks import TASKS
from transformer_jax.errors import nearest
from transformer_jax.registry.python_files import call_in_file
from transformer_jax.tools.sizing.sizes import require_sizes
from transformer_jax.tools.study.comparability import differing_settings, require_comparable, require_same_text

STORAGE_VARIABLE = "TRANSFORMER_JAX_SWEEP_STORAGE"
"""Environment variable with the SQLAlchemy URL of the database that holds the study."""

SAMPLERS = ("grid", "random", "tpe", "cma-es")
PRUNERS = ("none", "median", "successive_halving", "hyperband")
# Keys of points.
ROW = "row"
SEED = "seed"

Value = str | int | float | bool


@dataclass(frozen=True)
class Choice:
    """One of several values, without an order."""

    values: tuple[Value, ...]

    def __init__(self, *values: Value) -> None:
        object.__setattr__(self, "values", values)
        if len(set(values)) < len(values) or not values:
            raise ConfigError(f"Choice{values}", "needs values that differ")

    @property
    def ends(self) -> tuple[Value, ...]:
        return self.values


@dataclass(frozen=True)
class Uniform:
    """A number uniformly distributed from ``low`` to ``high``."""

    low: float | int
    high: float | int

    def __post_init__(self) -> None:
        least = math.ulp(0.0) if isinstance(self, LogUniform) else -math.inf
        if not least <= self.low < self.high < math.inf:
            raise ConfigError(self, f"needs {'' if least < 0 else '0 < '}low < high, both finite")

    @property
    def ends(self) -> tuple[Value, ...]:
        return float(self.low), float(self.high)


class LogUniform(Uniform):
    """A positive number whose logarithm is uniformly distributed, such as a learning rate."""


@dataclass(frozen=True)
class Integers(Uniform):
    """An integer from ``low`` to ``high``, both included, in steps of ``step``."""

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step < 1 or (self.high - self.low) % self.step:
            raise ConfigError(self, "step must be positive and divide high - low")

    @property
    def ends(self) -> tuple[Value, ...]:
        return self.low, self.high


Range = Choice | Uniform


@dataclass(frozen=True)
class Sweep:
    """A sweep, as returned by ``get_sweep()`` of a sweep file.

    A trial is ``config`` with ``overrides`` and a point. With ``sampler="grid"`` the points are all
    combinations of ``rows`` of overrides, ``seeds`` and the Choices of ``space``. Other samplers
    choose ``trials`` points of ``space`` by the results of earlier trials. The value of a trial is
    its best validation of ``metric`` (default: the metric that selects checkpoints). The ``pruner``
    stops a trial that is worse than other trials at the same update. With ``are_seeds_paired`` only
    trials of equal seed are compared, so seeds may hold out different sentences. Keys are written
    as in ``--config.KEY``.
    """

    config: str
    overrides: Mapping[str, Value] = field(default_factory=dict)
    rows: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    space: Mapping[str, Range] = field(default_factory=dict)
    metric: str = ""
    sampler: str = "grid"
    pruner: str = "none"
    trials: int = 0
    are_seeds_paired: bool = False

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("metric", self.metric_key, tuple(_metrics())),
            ("sampler", self.sampler, SAMPLERS),
            ("pruner", self.pruner, PRUNERS),
        ):
            if value not in choices:
                raise ConfigError(name, f"{value!r} is not one of {', '.join(choices)}")
        if self.is_grid and self.trials:
            raise ConfigError("trials", "a grid has one trial per point", "leave trials out, or choose another sampler")
        if not self.is_grid and (self.trials < 1 or not self.space):
            raise ConfigError(f"sampler={self.sampler}", "needs a space to choose from, and trials=N")
        if not self.is_grid and (self.rows or self.seeds):
            raise ConfigError("rows, seeds", "only a grid takes them", "put a Choice into space instead")
        for name in self.rows:
            if "," in name:
                raise ConfigError("rows", f"{name!r} has a comma, which separates names in --rows", "rename it")
        if self.seeds and SEED in self.space:
            raise ConfigError("seeds, space", "both set the seed", "leave one out")
        if self.sampler == "cma-es" and (
            len(self.space) < 2 or any(isinstance(values, Choice) for values in self.space.values())
        ):
            raise ConfigError("sampler=cma-es", "needs two or more ranges of numbers and no Choice", "use tpe")

    @property
    def is_grid(self) -> bool:
        return self.sampler == "grid"

    @cached_property
    def metric_key(self) -> str:
        """``metric``, or the key of the metric that selects checkpoints in the first row.

        An invalid recipe has the default one. It raises its error when it is used.
        """
        row = next(iter(self.rows.values()), {})
        try:
            overrides, changes = ({key: str(value) for key, value in block.items()} for block in (self.overrides, row))
            return self.metric or resolve(self.config, overrides.items(), changes).selection.key
        except ConfigError:
            return ExperimentConfig().selection.key

    @property
    def measured(self) -> Metric:
        return _metrics()[self.metric_key]

    def points(self) -> list[dict[str, Value]]:
        """Return the points of a grid, ``[{"row": "base", "seed": 0, "model.dropout": 0.1}, ...]``.

        Another sampler chooses points later, and has empty ones here.
        """
        return self._points

    @cached_property
    def _points(self) -> list[dict[str, Value]]:
        if not self.is_grid:
            return [{} for _ in range(self.trials)]
        axes = {name: choice.values for name, choice in self.axes().items() if isinstance(choice, Choice)}
        return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]

    def axes(self) -> dict[str, Range]:
        """Return the ranges of the varied settings, with ``row`` and ``seed``."""
        lists: dict[str, Range] = {ROW: Choice(*self.rows)} if self.rows else {}
        if self.seeds:
            lists[SEED] = Choice(*self.seeds)
        return lists | dict(self.space)

    def settings(self, point: Mapping[str, Value]) -> ExperimentConfig:
        """Return the settings of the trial at ``point``."""
        row = self.rows[str(point[ROW])] if ROW in point else {}
        overrides = [(key, str(value)) for key, value in self.overrides.items()]
        changes = {key: str(value) for key, value in {**row, **point}.items() if key != ROW}
        require_sizes(self.config, [*overrides, *changes.items()], "config")
        return resolve(self.config, overrides, changes)


class TrialRow(NamedTuple):
    """A trial with the ``value`` and all ``metrics`` of its best validation so far, at ``step``."""

    number: int
    state: str
    value: float | None
    step: int | None
    point: Mapping[str, Value]
    minutes: float | None
    folder: str
    error: str
    metrics: Mapping[str, float]

    @property
    def has_ended(self) -> bool:
        return self.state not in ("waiting", "running")

    @property
    def has_value(self) -> bool:
        """Whether the trial ended with a value, as pruned ones do too."""
        return self.state in ("complete", "pruned") and self.value is not None


def load_sweep(spec: str, overrides: Sequence[tuple[str, str]] = (), rows: Sequence[str] = ()) -> Sweep:
    """Read a sweep from ``path.py[:argument]``, add ``overrides``, keep ``rows`` (default: all).

    A row that sets the key of an override keeps its value. Raises ConfigError if there is no such
    file, the file fails, or the sweep is invalid.
    """
    name, _, argument = spec.partition(":")
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError("--sweep", f"no file {name}", "give a Python file with a function get_sweep()")
    sweep = call_in_file(path, "get_sweep", argument, "a sweep")
    if not isinstance(sweep, Sweep):
        raise ConfigError(path, f"get_sweep() must return a Sweep, not {sweep!r}")
    try:
        for row in rows:
            if row not in sweep.rows:
                near = nearest(row, sweep.rows)
                hint = f"did you mean {near}?" if near else ", ".join(sweep.rows)
                raise ConfigError("--rows", f"no row {row!r}", hint)
        sweep = replace(sweep, rows={row: sweep.rows[row] for row in rows}) if rows else sweep
        for key, _ in overrides:
            if key in sweep.axes() or (sweep.rows and all(key in row for row in sweep.rows.values())):
                raise ConfigError(f"--config.{key}", "the sweep sets it in every trial", "change the file")
        sweep = replace(sweep, overrides={**sweep.overrides, **{key: read_value(key, text) for key, text in overrides}})
        check(sweep)
    except ConfigError as error:
        raise ConfigError(path, error) from None
    return sweep


def check(sweep: Sweep) -> list[ExperimentConfig]:
    """Check every point of a grid, or every bound of every range, and return the settings."""
    for key, values in sweep.space.items():
        if sweep.is_grid and not isinstance(values, Choice):
            raise ConfigError(f"space, {key}", "a grid takes a Choice", f"{values} needs another sampler")
        for value in values.ends:
            expected = type_of(key)
            if type(read_value(key, str(value))) is not type(value) and not (expected is float and type(value) is int):
                raise ConfigError(f"space, {key}", f"{value!r} does not fit a setting of type {expected.__name__}")
    checked: list[ExperimentConfig] = []
    by_row: dict[Value | None, list[ExperimentConfig]] = {}
    bounds: list[dict[str, Value]] = [{}, *({key: end} for key, values in sweep.space.items() for end in values.ends)]
    for point in sweep.points() if sweep.is_grid else bounds:
        try:
            settings = sweep.settings(point)
            settings.check_new_run()
            metric = _measured(sweep.metric_key, settings)
        except ConfigError as error:
            raise ConfigError(f"trial {point}" if point else "overrides", error) from None
        checked.append(settings)
        by_row.setdefault(point.get(ROW), []).append(settings)
    parts = {key.split(".")[1] for key in sweep.overrides if key.startswith("parts.")}
    if unused := parts.difference(*(trial.parts for trial in checked)):
        raise ConfigError(f"parts.{min(unused)}", "no trial selects this part", "leave its settings out")
    require_comparable(metric, differing_settings(checked), settings)
    # Rows may train on different corpora, as the rows of the paper's table 2 do.
    for configs in by_row.values():
        require_same_text(configs, ignored=frozenset({SEED} if sweep.are_seeds_paired else ()))
    return checked


def _measured(key: str, settings: ExperimentConfig) -> Metric:
    """Return the metric of this key, which a run with these settings must measure."""
    metrics = {metric.key: metric for metric in settings.metrics}
    if key not in metrics:
        problem = f"{key} is not measured by task={settings.task} with these training.validation_metrics"
        raise ConfigError("metric", problem, f"one of {', '.join(metrics)}")
    needed = metrics[key].needs
    if needed and not attrgetter(needed)(settings):
        raise ConfigError(needed, f"is not set, so {key} is never measured", f"set {needed}")
    if not settings.training.evaluate_every:
        raise ConfigError("training.evaluate_every", f"0, so {key} is never reported", "set an interval of updates")
    return metrics[key]


def _metrics() -> dict[str, Metric]:
    """Return the metrics of all tasks, by key."""
    return {metric.key: metric for facts in TASKS.values() for metric in facts.metrics}
