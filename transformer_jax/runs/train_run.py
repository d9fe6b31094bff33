"""Training with the installed tools, which may choose settings and add hooks to the updates."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    apply_overrides,
    difference,
    from_dict,
    load_run_config,
    may_change,
)
from transformer_jax.config.conversion import listed
from transformer_jax.config.migration import corruptions_applied_twice
from transformer_jax.config.run_settings import budget_of, is_run_directory, stated_settings
from transformer_jax.data.corpora import completed, require_target_language
from transformer_jax.data.examination import examined
from transformer_jax.errors import complain
from transformer_jax.files.json_text import parse_json
from transformer_jax.registry.index import behind, single_behind
from transformer_jax.run_directory.layout import (
    RunDirectory,
    require_plugins,
    require_run_to_start_from,
    require_settings,
)
from transformer_jax.run_directory.stored_checkpoints import stored_checkpoints

if TYPE_CHECKING:
    from transformer_jax.runs.run import Hook, Outcome

NO_SIZING = "no tool that sizes runs for a time budget is installed; state the sizes and training.num_updates"
RATE = "optimizer.learning_rate"
Overrides = Sequence[tuple[str, str]]


class ResolvedSettings(NamedTuple):
    """The settings of a run, a remark on their choice, and a record of it for ``run.json``."""

    config: ExperimentConfig
    remark: str = ""
    record: Mapping[str, Any] = MappingProxyType({})


class ChoosesSettings(Protocol):
    """The door ``settings``: resolves a recipe and its overrides for the time ``budget``."""

    def __call__(
        self,
        recipe: str | Mapping[str, Any],
        overrides: Overrides,
        workdir: str,
        budget: str | None,
        *,
        is_distributed: bool,
    ) -> ResolvedSettings: ...


class TrainingStart(NamedTuple):
    """The start of a run; ``origin`` goes to ``run.json``."""

    config: ExperimentConfig
    directory: RunDirectory
    origin: Mapping[str, Any]


class SurroundsTraining(Protocol):
    """The door ``run_hooks``: a context manager around a training, which yields hooks."""

    def __call__(self, start: TrainingStart) -> "AbstractContextManager[Sequence[Hook]]": ...


def require_same_run(config: ExperimentConfig, workdir: str) -> None:
    """Raise ConfigError, with the differences, when ``workdir`` has checkpoints of other settings.

    Without checkpoints, raises ConfigError when ``init.run`` or ``init.embeddings`` does not exist.
    """
    run_directory = RunDirectory(workdir)
    checkpoints = stored_checkpoints(run_directory.checkpoints)
    if not checkpoints:
        if config.init.run:
            require_run_to_start_from(config.init.run)
        if config.init.embeddings and not Path(config.init.embeddings).is_file():
            raise ConfigError("init.embeddings", f"{config.init.embeddings} is not a file", "give word vectors")
        return
    if not checkpoints[-1].can_be_continued:
        problem = f"{workdir} has averaged parameters without an optimizer state, from which no run resumes"
        raise ConfigError("--workdir", problem, f"start a new run in another folder with --init_from={workdir}")
    if not run_directory.config.is_file():
        problem = f"{workdir} has checkpoints but no {run_directory.config.name}"
        raise ConfigError("--workdir", problem, "put it back, or use another folder")
    require_settings(run_directory.path)
    require_plugins(run_directory.path)
    saved = load_run_config(workdir)
    for name in corruptions_applied_twice(parse_json(run_directory.config.read_text(encoding="utf-8"))):
        complain(f"transformer-jax: {workdir}: training.corruptions named {name} twice and applied it twice; now once")
    clashes = [change for change in difference(saved, config) if not may_change(change[0], saved, config)]
    if clashes:
        problem = f"{workdir} holds a run with other settings"
        raise ConfigError("--workdir", problem, f"use another folder, or these:{listed(clashes)}")


def settings_to_train(
    recipe: str | Mapping[str, Any],
    overrides: Overrides,
    workdir: str,
    budget: str | None = None,
    *,
    is_distributed: bool = False,
) -> tuple[ExperimentConfig, Mapping[str, Any]]:
    """Return the settings of a run, with sizes for ``budget``, and a record for ``run.json``.

    Completes the languages of the text and prints remarks. A run that resumes keeps the ``init``
    with which it began. Raises ConfigError when the settings cannot resume the run in ``workdir``,
    the text of a new run is not in its target language, or no tool chooses sizes for the budget,
    and DataError when the text cannot be read. Does not import JAX.
    """
    resolved = _resolved(recipe, overrides, workdir, budget, is_distributed=is_distributed)
    config, remark = completed(resolved.config)
    require_same_run(config, workdir)
    rate = ""
    if RunDirectory(workdir).has_checkpoints():
        config = replace(config, init=load_run_config(workdir).init)
    else:
        require_target_language(config)
        if config.init.run and isinstance(recipe, str) and is_run_directory(recipe) and RATE not in dict(overrides):
            peak = f"{RATE}={config.optimizer.learning_rate:g} is the peak of {recipe}"
            rate = f"{peak}; fine-tuning usually takes less, such as a fifth"
    for line in filter(None, (resolved.remark, remark, rate)):
        complain(line)
    return config, resolved.record


def _resolved(
    recipe: str | Mapping[str, Any], overrides: Overrides, workdir: str, budget: str | None, *, is_distributed: bool
) -> ResolvedSettings:
    choose: ChoosesSettings | None = single_behind("settings")
    if choose:
        return choose(recipe, overrides, workdir, budget, is_distributed=is_distributed)
    key = "--budget" if budget else f"--config={recipe}"
    if budget or (isinstance(recipe, str) and budget_of(recipe, overrides)):
        raise ConfigError(key, NO_SIZING)
    values = stated_settings(recipe, overrides) if isinstance(recipe, str) else recipe
    config = from_dict(apply_overrides(values, overrides))
    if config.training.budget_seconds:
        raise ConfigError("training.budget_seconds", NO_SIZING)
    return ResolvedSettings(config)


def train_run(
    config: ExperimentConfig,
    workdir: str | Path,
    callbacks: Sequence["Hook"] = (),
    *,
    is_distributed: bool = False,
    origin: Mapping[str, Any] = MappingProxyType({}),
    is_trial: bool = False,
) -> "Outcome":
    """Train or resume a run as ``run_training`` does, surrounded by the installed tools.

    ``origin``: the record of ``settings_to_train``. Prints faults of the text before a run begins,
    and raises DataError at serious ones, unless ``is_trial``: it is one of many runs on the text.
    """
    from transformer_jax.runs.trainer import run_training

    if not (is_trial or RunDirectory(workdir).has_checkpoints()):
        for warning in examined("run", config):
            complain(warning)
    start = TrainingStart(config, RunDirectory(workdir), origin)
    surroundings: Mapping[str, SurroundsTraining] = behind("run_hooks")
    with ExitStack() as stack:
        hooks = [hook for surround in surroundings.values() for hook in stack.enter_context(surround(start))]
        return run_training(config, workdir, [*hooks, *callbacks], is_distributed=is_distributed, origin=origin)
