"""A sweep as its file states it: one recipe, what is varied in it, what counts as better, and how much may be tried."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from transformer_jax.config import ConfigError, ExperimentConfig, resolve, structure_of
from transformer_jax.config.conversion import read_value, type_of
from transformer_jax.config.errors import nearest
from transformer_jax.config.optimization import mesh_sizes
from transformer_jax.config.plugins import call_in_file
from transformer_jax.config.tasks import TASKS
from transformer_jax.tools.sweeps.ranges import Choice, Range, Value

Direction = Literal["maximize", "minimize"]
SAMPLERS = ("grid", "random", "tpe", "cma-es")
PRUNERS = ("none", "median", "successive_halving", "hyperband")
ROW, SEED = "row", "seed"


@dataclass(frozen=True)
class Sweep:
    """A sweep, as returned by a sweep file's ``get_sweep()``.

    Every trial is ``config`` with ``overrides``, and then: each of the named ``rows`` of overrides, with each of the
    ``seeds``, with each point of ``space`` (``sampler="grid"``), or ``trials`` points of ``space`` that the sampler chooses
    given the results of earlier trials. The value of a trial is its best validation of ``metric`` (default: the one
    that selects checkpoints). The ``pruner`` stops a trial early whose metric is worse than others' at the same update.

    Keys are those of ``--config.KEY``. Raises ConfigError when an option is not one of those there are, or two exclude each
    other; see also ``check``.
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

    def __post_init__(self) -> None:
        if not self.metric:
            object.__setattr__(self, "metric", _selection_key(self.config, self.overrides))
        for name, value, choices in (
            ("metric", self.metric, tuple(_directions())),
            ("sampler", self.sampler, SAMPLERS),
            ("pruner", self.pruner, PRUNERS),
        ):
            if value not in choices:
                raise ConfigError(f"{name}: {value!r} is not one of {', '.join(choices)}")
        if self.is_listed and self.trials:
            raise ConfigError("trials: a grid has as many as it has points; leave trials out, or name another sampler")
        if not self.is_listed and (self.trials < 1 or not self.space):
            raise ConfigError(f"sampler={self.sampler}: needs a space to choose from, and trials=N, how often")
        if not self.is_listed and (self.rows or self.seeds):
            raise ConfigError("rows, seeds: only a grid goes through them; put a Choice into space instead")

        commas = [name for name in self.rows if "," in name]
        if commas:
            raise ConfigError(
                f"rows: {commas[0]!r} has a comma in its name, which separates names in --rows; rename it"
            )
        if self.seeds and SEED in self.space:
            raise ConfigError("seeds, space: both state the seed; leave one out")
        if self.sampler == "cma-es" and (
            len(self.space) < 2 or any(isinstance(each, Choice) for each in self.space.values())
        ):
            raise ConfigError("sampler=cma-es: needs two or more ranges of numbers and no Choice; use tpe")

    @property
    def is_listed(self) -> bool:
        """Whether all trials are listed: those of a grid."""
        return self.sampler == "grid"

    @property
    def direction(self) -> Direction:
        """``maximize`` or ``minimize``."""
        return _directions()[self.metric]

    def points(self) -> list[dict[str, Value]]:
        """The point of each trial: complete where trials are listed, else empty, which leaves it to the sampler.

        ``[{"row": "base", "seed": 0, "model.dropout": 0.1}, ...]``; the row and the seed stand for their overrides.
        """
        if not self.is_listed:
            return [{} for _ in range(self.trials)]
        axes = [(name, choice.values) for name, choice in self.axes().items() if isinstance(choice, Choice)]
        names = [name for name, _ in axes]
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*(values for _, values in axes))]

    def axes(self) -> dict[str, Range]:
        """The varied settings, by name."""
        lists: dict[str, Range] = {ROW: Choice(*self.rows)} if self.rows else {}
        if self.seeds:
            lists[SEED] = Choice(*self.seeds)
        return lists | dict(self.space)

    def settings(self, point: Mapping[str, Value]) -> ExperimentConfig:
        """The settings of the trial at ``point``.

        Raises ConfigError when they exclude each other.
        """
        row = self.rows[str(point[ROW])] if ROW in point else {}
        stated = {**self.overrides, **row, **{key: value for key, value in point.items() if key != ROW}}
        return resolve(self.config, [(key, str(value)) for key, value in stated.items()])


def load_sweep(spec: str, overrides: Sequence[tuple[str, str]] = (), rows: Sequence[str] = ()) -> Sweep:
    """Reads a sweep from ``path.py[:argument]``, with more ``overrides`` of all trials, and only the named ``rows``.

    Raises ConfigError when there is no such file, it fails, or what it states is not possible.
    """
    name, _, argument = spec.partition(":")
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"--sweep: no file {name}; give a Python file with a function get_sweep()")
    sweep = call_in_file(path, "get_sweep", argument, "a sweep")
    if not isinstance(sweep, Sweep):
        raise ConfigError(
            f"{path}: get_sweep() must return a transformer_jax.tools.sweeps.definition.Sweep, not {sweep!r}"
        )
    try:
        sweep = replace(sweep, rows=_chosen(sweep.rows, rows)) if rows else sweep
        stated = {key: read_value(key, text) for key, text in overrides}
        for key in stated:
            _require_effect(sweep, key)
        sweep = replace(sweep, overrides=dict(sweep.overrides) | stated)
        check(sweep)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return sweep


def _chosen(rows: Mapping[str, Mapping[str, Value]], names: Sequence[str]) -> dict[str, Mapping[str, Value]]:
    unknown = [name for name in names if name not in rows]
    if unknown:
        near = nearest(unknown[0], rows)
        raise ConfigError(f"--rows: no row {unknown[0]!r}; {f'did you mean {near}?' if near else ', '.join(rows)}")
    return {name: rows[name] for name in names}


def _require_effect(sweep: Sweep, key: str) -> None:
    """Raises ConfigError for an override that the sweep replaces in every trial."""
    is_varied = key in sweep.axes() or (sweep.rows and all(key in row for row in sweep.rows.values()))
    if is_varied:
        raise ConfigError(f"--config.{key}: the sweep sets it in every trial; change the file")


def _selection_key(recipe: str, overrides: Mapping[str, Value]) -> str:
    """The selection metric of the recipe's task; a broken recipe raises its error when it is used."""
    try:
        return resolve(recipe, [(key, str(value)) for key, value in overrides.items()]).selection.key
    except ConfigError:
        return ExperimentConfig().selection.key


def _directions() -> dict[str, Direction]:
    """The metrics that runs of any task report at every validation, and which direction is better."""
    return {metric.key: metric.direction for facts in TASKS.values() for metric in facts.metrics}


def _metrics_of(task: str) -> list[str]:
    return [metric.key for metric in TASKS[task].metrics]


def check(sweep: Sweep) -> None:
    """Raises ConfigError unless every listed trial, or every end of every range, is possible."""
    for key, values in sweep.space.items():
        if sweep.is_listed and not isinstance(values, Choice):
            raise ConfigError(f"space, {key}: a grid goes through a Choice; {values} needs another sampler")
        for value in values.ends():
            _require_type(key, value)
    # Where trials are not listed: the recipe with one end of one range at a time.
    ends = [{key: value} for key, values in sweep.space.items() for value in values.ends()]
    for point in sweep.points() if sweep.is_listed else [{}, *ends]:
        try:
            settings = sweep.settings(point)
            if sweep.metric not in _metrics_of(settings.task):
                choices = ", ".join(_metrics_of(settings.task))
                raise ConfigError(f"metric: {sweep.metric} is not measured by task={settings.task}; one of {choices}")
            if sweep.metric not in [metric.key for metric in settings.metrics]:
                named = f"training.validation_metrics={settings.training.validation_metrics}"
                raise ConfigError(f"{named}: leaves {sweep.metric} out, so it is never measured; name it there")
            needed = next(metric.needs for metric in TASKS[settings.task].metrics if metric.key == sweep.metric)
            if needed and not attrgetter(needed)(settings):
                raise ConfigError(f"{needed}: is not set, so {sweep.metric} is never measured; set it")
            if not settings.training.evaluate_every:
                raise ConfigError(f"training.evaluate_every: 0, so {sweep.metric} is never reported; set it")
        except ConfigError as error:
            raise ConfigError(f"{f'trial {point}' if point else 'overrides'}: {error}") from None


def require_vectorizable(sweep: Sweep) -> None:
    """Raises ConfigError when no two of the listed trials could train as one program, each on one device."""
    configs = [sweep.settings(point) for point in sweep.points()]
    mesh_sizes(configs[0].mesh, 1, "that each model has with --vectorize")
    structures = [structure_of(config) for config in configs]
    if len(structures) > 1 and len(set(structures)) == len(structures):
        hint = "; with data.seed=0 all seeds read the data in one order" if configs[0].data.seed < 0 else ""
        raise ConfigError(f"--vectorize: no two trials differ in hyperparameters alone{hint}")


def _require_type(key: str, value: Any) -> None:
    """Raises ConfigError unless the setting exists and ``value`` has its type."""
    if type(read_value(key, str(value))) is not type(value) and not (type_of(key) is float and type(value) is int):
        raise ConfigError(f"space, {key}: {value!r} does not fit a setting of type {type_of(key).__name__}")
