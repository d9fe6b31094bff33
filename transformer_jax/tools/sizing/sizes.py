"""Settings of a run that follow from its corpus and a time budget.

Does not import JAX, so that mistakes are found early.
"""

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    apply_overrides,
    flatten,
    from_dict,
    load_run_config,
)
from transformer_jax.config.conversion import leaves
from transformer_jax.config.run_settings import budget_of, stated_settings
from transformer_jax.config.tasks import DEFAULT_TASK
from transformer_jax.files.checked_json import read_checked
from transformer_jax.registry.index import behind
from transformer_jax.run_directory.layout import RunDirectory, require_run_to_start_from
from transformer_jax.runs.train_run import RATE, Overrides, ResolvedSettings
from transformer_jax.runtime.startup import available_cores
from transformer_jax.tools.sizing.plan import Plan, seconds_of

# Matrix products small enough for one core: on several, each would wait for cores that other
# programs use.
PRODUCT_WIDTH = 64
# Products in a round, measured rounds (the fastest counts), and rounds before them.
PRODUCTS = 20
ROUNDS = 300
WARM_UP = 30
BUDGET_SECONDS = "training.budget_seconds"
# The peak rate of a run that begins with the parameters of another, as a share of the peak from
# random parameters.
SHARE_OF_PEAK = 0.2


class Sizing(NamedTuple):
    """How ``--budget`` sizes the runs of a task.

    ``recipe``: a recipe that states no sizes. ``keys``: the settings of a plan. ``models``: the
    kinds of models. ``plan`` takes settings, seconds, floating-point operations per second of this
    machine, and the fixed settings, which stay. ``placeholders`` takes the fixed settings and
    returns values for some of the ``keys``, valid beside them, until the plan has others.
    """

    recipe: str
    keys: tuple[str, ...]
    models: tuple[str, ...]
    plan: Callable[[ExperimentConfig, float, float, Mapping[str, Any]], Plan]
    placeholders: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda fixed: {}


class _Request(NamedTuple):
    """A time budget, also in seconds, the ``fixed`` settings, all with placeholders, the sizing."""

    budget: str
    seconds: float
    fixed: dict[str, Any]
    config: ExperimentConfig
    sizing: Sizing


def sized(
    source: str | Mapping[str, Any],
    overrides: Overrides,
    workdir: str,
    budget: str | None = None,
    *,
    is_distributed: bool = False,
) -> ResolvedSettings:
    """Return the settings of a recipe with overrides, and with sizes for a time budget.

    ``source``: a name, or nested settings. ``budget``: by default the ``BUDGET`` of the recipe.

    Settings that the recipe or overrides state stay. A run that has begun keeps its size. Raises
    ConfigError if the task cannot be sized, or the run ``is_distributed``: each process would
    measure another speed.
    """
    values = stated_settings(source, overrides) if isinstance(source, str) else source
    request = _request(source, values, overrides, budget)
    if request is None:
        return ResolvedSettings(from_dict(apply_overrides(values, overrides)))
    time_budget, seconds, fixed, config, sizing = request
    directory = RunDirectory(workdir)
    if directory.has_checkpoints() and directory.config.is_file():
        saved = flatten(load_run_config(directory.path))
        sized_keys = *sizing.keys, BUDGET_SECONDS
        kept = {key: saved[key] for key in sized_keys if key in saved and key not in fixed}
        if budget is not None and (before := kept.get(BUDGET_SECONDS)):
            kept[BUDGET_SECONDS] = seconds
            if seconds < before:
                _require_unfinished(directory, before)
        return ResolvedSettings(_with(values, kept, overrides), "the run keeps its size and its number of updates")
    if is_distributed:
        raise ConfigError(
            "--budget",
            "a budget, also of the recipe, sizes a run of one process",
            "with --distributed take a recipe with sizes",
        )
    flops = flops_here()
    restored = _restored_sizes(config, sizing, fixed)
    plan = sizing.plan(config, seconds, flops, restored | fixed)
    record = {"budget": time_budget, "flops": flops, "estimated_seconds": round(plan.seconds, 1)}
    record["max_updates"] = 0 if "training.num_updates" in fixed else plan.max_updates
    settings = {**plan.settings, BUDGET_SECONDS: 0.0 if "training.num_updates" in fixed else seconds}
    sentence = f"budget {time_budget}: {plan.sentence}"
    if config.init.run and RATE in settings and RATE not in fixed:
        settings[RATE] = round(settings[RATE] * SHARE_OF_PEAK, 6)
        sentence += (
            f"\n{RATE}={settings[RATE]:g}, {SHARE_OF_PEAK:g} of the peak from random parameters, for {config.init.run}"
        )
    planned = {key: value for key, value in (settings | restored).items() if key not in fixed}
    return ResolvedSettings(_with(values, planned, overrides), sentence, {"sizing": record})


def _request(
    source: str | Mapping[str, Any], values: Mapping[str, Any], overrides: Overrides, budget: str | None
) -> _Request | None:
    """Return the request for sizes, or None without a ``budget`` or a recipe that has one.

    Fixed seconds replace the budget of a recipe. Raises ConfigError if both a ``budget`` and
    seconds are fixed, or the run cannot be sized.
    """
    requested = budget if budget is not None or not isinstance(source, str) else budget_of(source, overrides)
    if requested is None:
        return None
    fixed = dict(leaves(apply_overrides(values, overrides)))
    if stated := fixed.get(BUDGET_SECONDS):
        if budget is not None:
            raise ConfigError("--budget", f"{BUDGET_SECONDS}={stated} is stated already", "leave one of them out")
        requested = f"{stated}s"
    seconds = seconds_of(requested)
    config = _with(values, _open_settings(fixed), overrides)
    return _Request(requested, seconds, fixed, config, _sizing_of(config, fixed, has_flag=budget is not None))


def _require_unfinished(directory: RunDirectory, budget_seconds: float) -> None:
    """Raise ConfigError if a run has finished: its next updates would have its peak rate again."""
    if (read_checked(directory.outcome) or {}).get("reason") == "finished":
        problem = f"{directory.path} has finished, with a budget of {budget_seconds:g} s"
        raise ConfigError("--budget", problem, "give a longer one, or train into another --workdir")


def _restored_sizes(config: ExperimentConfig, sizing: Sizing, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return sizes of the run whose parameters are restored, if any.

    They are the ones that ``sizing`` would choose, except dropout.
    """
    if not config.init.run:
        return {}
    require_run_to_start_from(config.init.run)
    saved = flatten(load_run_config(config.init.run))
    sized = [key for key in sizing.keys if key.startswith(("model.", "tokenizer.")) and "dropout" not in key]
    return {key: saved[key] for key in sized if key in saved and key not in fixed}


def require_stated_tokens(source: str, overrides: Overrides, budget: str | None, key: str) -> None:
    """Raise ConfigError (``key``) if ``train`` would choose settings of tokenizer or lengths."""
    request = _request(source, stated_settings(source, overrides), overrides, budget)
    if request is None:
        return
    keys = (key for key in request.sizing.keys if key not in request.fixed)
    missing = [name for name in keys if name.startswith(("tokenizer.", "data."))]
    if missing:
        problem = f"with a budget, --config={source} chooses {', '.join(missing)} when training begins"
        remedy = f"state them (--config.{missing[0]}=...), or train on the text, without a store"
        raise ConfigError(key, problem, remedy)


def settings_and_budget(source: str, overrides: Overrides, budget: str | None) -> tuple[ExperimentConfig, str | None]:
    """Return the settings of ``train``, and the budget by which it chooses sizes, if any.

    The sizes that it would choose are placeholders. Raises ConfigError if ``train`` would refuse
    the settings.
    """
    values = stated_settings(source, overrides)
    request = _request(source, values, overrides, budget)
    return (request.config, request.budget) if request else (from_dict(apply_overrides(values, overrides)), None)


def require_sizes(source: str, overrides: Overrides, key: str) -> None:
    """Raise ConfigError (``key``) if ``train`` would choose the sizes of a recipe by a budget."""
    if budget_of(source, overrides) and "model.d_model" not in dict(overrides):
        remedy = "name a run that it trained (--config=RUN), or another recipe, or state model.d_model and all that a plan sets"
        raise ConfigError(key, f"--config={source} gets its sizes from a budget in train only", remedy)


def _open_settings(fixed: Mapping[str, Any]) -> dict[str, int]:
    """Return the placeholders of the task that are not fixed, and of the warm-up."""
    sizing: Sizing | None = behind("sizes").get(fixed.get("task", DEFAULT_TASK))
    settings = {"optimizer.warmup_updates": 1, **(sizing.placeholders(fixed) if sizing else {})}
    return {key: value for key, value in settings.items() if key not in fixed}


def _sizing_of(config: ExperimentConfig, fixed: Mapping[str, Any], *, has_flag: bool) -> Sizing:
    """Return the sizing of the task.

    Raises ConfigError if it has none for this data and model, or the length is fixed too.
    """
    sizings: Mapping[str, Sizing] = behind("sizes")
    sizing = sizings.get(config.task)
    if sizing is None or config.data.source != "text":
        recipes = ", ".join(f"--config={sizing.recipe}" for sizing in sizings.values())
        if sizing and not has_flag:
            others = "such as --config=multi30k:tiny_hour or --config=language_model:quick, and set its sizes"
            raise ConfigError(
                "data.source",
                f"{recipes} choose sizes for text, not for {config.data.source}",
                f"name another recipe, {others}",
            )
        raise ConfigError(
            "--budget",
            f"sizes a run on text files (data.source=text; {recipes})",
            "for others set the sizes yourself",
        )
    if config.model.kind not in sizing.models:
        raise ConfigError(
            "--budget",
            f"sizes model.kind={', '.join(sizing.models)}",
            f"set the sizes of model.kind={config.model.kind} yourself",
        )
    if has_flag and "training.num_updates" in fixed:
        raise ConfigError(
            "--budget",
            f"training.num_updates={fixed['training.num_updates']} is stated already",
            f"leave one of them out, or take --config={sizing.recipe}, which states no length",
        )
    return sizing


def _with(values: Mapping[str, Any], settings: Mapping[str, Any], overrides: Overrides) -> ExperimentConfig:
    added = [(key, str(value)) for key, value in settings.items()]
    return from_dict(apply_overrides(values, [*added, *overrides]))


@cache
def flops_here() -> float:
    """Measure the FLOP/s of small float32 matrix products on the cores of this process."""
    matrix = np.ones((PRODUCT_WIDTH, PRODUCT_WIDTH), np.float32)
    product, times = np.empty_like(matrix), []
    for _ in range(WARM_UP + ROUNDS):
        started = time.perf_counter()
        for _ in range(PRODUCTS):
            np.matmul(matrix, matrix, out=product)
        times.append(time.perf_counter() - started)
    return available_cores() * PRODUCTS * 2 * PRODUCT_WIDTH**3 / min(times[WARM_UP:])
