"""Settings of a run that follow from its corpus and a budget of time."""

import os
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.config import ConfigError, ExperimentConfig, apply_overrides, flatten, from_dict, load_run_config
from transformer_jax.config.plugins import names_in_file
from transformer_jax.config.recipes import find_recipe, is_run_directory, stated_settings, with_own_text
from transformer_jax.config.sizing import seconds_of
from transformer_jax.config.tasks import DEFAULT_TASK
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tasks.sizings import SIZINGS, Sizing

# Products so small that they stay on one core: those that share cores wait for one another when others use them too.
PRODUCT_WIDTH, PRODUCTS, ROUNDS, WARM_UP = 64, 20, 300, 30

Overrides = Sequence[tuple[str, str]]


class SizedConfig(NamedTuple):
    """The settings of a run, a line that says how they were chosen, and what ``run.json`` keeps of that."""

    config: ExperimentConfig
    remark: str = ""
    record: Mapping[str, Any] = {}


def sized(
    source: str | Mapping[str, Any],
    overrides: Overrides,
    workdir: str,
    budget: str | None = None,
    *,
    is_alone: bool = True,
) -> SizedConfig:
    """The settings of a recipe (by name, or nested) with overrides, and what ``budget``, or its own ``BUDGET``, adds to them.

    What recipe and overrides state stays. A run that has begun keeps its size. Raises ConfigError where nothing can be sized,
    and unless the process ``is_alone``: each of several would measure another speed.
    """
    values = stated_settings(source, overrides) if isinstance(source, str) else source
    asked = budget or (_budget_of(source, overrides) if isinstance(source, str) else None)
    if asked is None:
        return SizedConfig(from_dict(apply_overrides(values, overrides)))
    seconds = seconds_of(asked)
    stated = _leaves(apply_overrides(values, overrides))
    config = _with(values, _open_lengths(stated), overrides)
    sizing = _sizing_of(config, stated, is_asked=budget is not None)
    directory = RunDirectory(workdir)
    if directory.has_checkpoints() and directory.config.is_file():
        saved = flatten(load_run_config(directory.path))
        kept = {key: saved[key] for key in sizing.keys if key in saved and key not in stated}
        return SizedConfig(_with(values, kept, overrides), "the run keeps its size")
    if not is_alone:
        raise ConfigError(
            "--budget: sizes a run of one process; with --distributed set the sizes and training.num_updates yourself"
        )
    flops = flops_here()
    plan = sizing.plan(config, seconds, flops, stated)
    record = {"budget": asked, "flops": flops, "estimated_seconds": round(plan.seconds, 1)}
    settings = {**plan.settings, "training.budget_seconds": 0.0 if "training.num_updates" in stated else seconds}
    chosen = {key: value for key, value in settings.items() if key not in stated}
    return SizedConfig(_with(values, chosen, overrides), f"budget {asked}: {plan.sentence}", {"sizing": record})


def _open_lengths(stated: Mapping[str, Any]) -> dict[str, int]:
    """Lengths of pairs that fit any batch, until the plan chooses them."""
    is_open = stated.get("task", DEFAULT_TASK) == DEFAULT_TASK
    keys = [f"data.max_{side}_tokens" for side in ("source", "target")]
    return {key: 8 for key in keys if is_open and key not in stated}


def _sizing_of(config: ExperimentConfig, stated: Mapping[str, Any], *, is_asked: bool) -> Sizing:
    """The sizing of the task; raises ConfigError where there is none, for this data and model, or the length is stated."""
    sizing = SIZINGS.get(config.task)
    if sizing is None or config.data.source != "text":
        recipes = ", ".join(f"--config={each.recipe}" for each in SIZINGS.values())
        raise ConfigError(
            f"--budget: sizes a run on text files (data.source=text; {recipes}); for others set the sizes yourself"
        )
    if config.model.kind not in sizing.models:
        raise ConfigError(
            f"--budget: sizes model.kind={', '.join(sizing.models)}; set the sizes of model.kind={config.model.kind} yourself"
        )
    if is_asked and "training.num_updates" in stated:
        raise ConfigError(
            f"--budget: training.num_updates={stated['training.num_updates']} is stated already; leave one of them out, or "
            f"take --config={sizing.recipe}, which states no length"
        )
    return sizing


def _with(values: Mapping[str, Any], chosen: Mapping[str, Any], overrides: Overrides) -> ExperimentConfig:
    added = [(key, str(value)) for key, value in chosen.items()]
    return from_dict(apply_overrides(values, [*added, *overrides]))


def _leaves(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"model": {"d_ff": 8}}`` as ``{"model.d_ff": 8}``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _budget_of(source: str, overrides: Overrides) -> str | None:
    """The ``BUDGET`` of a recipe: one for all of its variants, or by variant."""
    if is_run_directory(source):
        return None
    recipe, _, variant = with_own_text(source, overrides).partition(":")
    found = names_in_file(find_recipe(recipe)).get("BUDGET")
    found = found.get(variant) if isinstance(found, Mapping) else found
    return None if found is None else str(found)


@cache
def flops_here() -> float:
    """Floating-point operations per second of small matrix products in float32 on the cores that this process may use."""
    matrix = np.ones((PRODUCT_WIDTH, PRODUCT_WIDTH), np.float32)
    product, times = np.empty_like(matrix), []
    for _ in range(WARM_UP + ROUNDS):
        started = time.perf_counter()
        for _ in range(PRODUCTS):
            np.matmul(matrix, matrix, out=product)
        times.append(time.perf_counter() - started)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores * PRODUCTS * 2 * PRODUCT_WIDTH**3 / min(times[WARM_UP:])
