"""A run with the tools around it: sizes for a budget, warnings about the text, the watch on the budget, curves at the end."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from transformer_jax.config import ExperimentConfig, load_run_config
from transformer_jax.config.errors import complain
from transformer_jax.data.corpora import completed
from transformer_jax.runs.resumption import require_same_run
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tools.sizing.sizes import sized

if TYPE_CHECKING:
    from transformer_jax.runs.run import Hook, Outcome


def settings_to_train(
    recipe: str | Mapping[str, Any],
    overrides: Sequence[tuple[str, str]],
    workdir: str,
    budget: str | None = None,
    *,
    is_distributed: bool = False,
) -> tuple[ExperimentConfig, Mapping[str, Any]]:
    """Return the settings of a run, with sizes for ``budget`` and the languages of its text, and a record for ``run.json``.

    Prints remarks. A run that resumes keeps the ``init`` with which it began. Does not import JAX.
    Raises ConfigError when the settings cannot resume the run in ``workdir``; DataError when the text cannot be read.
    """
    sizing = sized(recipe, overrides, workdir, budget, is_distributed=is_distributed)
    config, remark = completed(sizing.config)
    require_same_run(config, workdir)
    if RunDirectory(workdir).has_checkpoints():
        config = replace(config, init=load_run_config(workdir).init)
    for line in filter(None, (sizing.remark, remark)):
        complain(line)
    return config, sizing.record


def train_run(
    config: ExperimentConfig,
    workdir: str | Path,
    callbacks: Sequence["Hook"] = (),
    *,
    is_distributed: bool = False,
    origin: Mapping[str, Any] = MappingProxyType({}),
    warns: bool = False,
    has_curves: bool = True,
) -> "Outcome":
    """Train or resume a run within its time budget, as ``run_training`` does, and draw its curves at the end.

    ``origin``: the record of ``settings_to_train``. ``warns``: prints where the sides of the training text are shifted.
    """
    from transformer_jax.runs.trainer import run_training
    from transformer_jax.tools.data_check.line_shift import shift_warnings
    from transformer_jax.tools.pictures.curves import curves_at_end
    from transformer_jax.tools.sizing.budget import KeepToBudget

    for warning in shift_warnings(config) if warns else ():
        complain(warning)
    if config.training.budget_seconds:
        callbacks = [KeepToBudget(is_sized="sizing" in origin), *callbacks]
    with curves_at_end(RunDirectory(workdir), config) if has_curves else nullcontext():
        return run_training(config, workdir, callbacks, is_distributed=is_distributed, origin=origin)
