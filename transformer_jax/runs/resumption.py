"""Settings of a run before JAX starts, and whether they can resume the run in its directory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_jax.checkpoints.format import stored_checkpoints
from transformer_jax.config import ConfigError, ExperimentConfig, difference, load_run_config, may_change
from transformer_jax.config.conversion import listed
from transformer_jax.data.corpora import with_languages
from transformer_jax.runs.run_directory import RunDirectory, require_plugins, require_settings
from transformer_jax.runtime.object_store import local_run
from transformer_jax.tasks.sizing import sized


def settings_to_train(
    recipe: str | Mapping[str, Any],
    overrides: Sequence[tuple[str, str]],
    workdir: str,
    budget: str | None,
    *,
    is_alone: bool = True,
) -> tuple[ExperimentConfig, Mapping[str, Any], list[str]]:
    """The settings of a run, sized for the budget and with the languages of its text; their record; remarks for the user.

    Raises ConfigError when they cannot resume the run in ``workdir``; DataError when the text cannot be read.
    """
    found = sized(recipe, overrides, workdir, budget, is_alone=is_alone)
    config, remark = with_languages(found.config)
    config = replace(config, init=config.init.absolute(), data=config.data.absolute())
    require_same_run(config, workdir)
    return with_recorded_init(config, workdir), found.record, [each for each in (found.remark, remark) if each]


def require_same_run(config: ExperimentConfig, workdir: str) -> None:
    """Raises ConfigError, with the differences, when ``workdir`` holds checkpoints that ``config`` cannot continue.

    If it holds none, raises ConfigError where ``init.run`` or ``init.embeddings`` does not exist.
    """
    run_directory = RunDirectory(workdir)
    checkpoints = stored_checkpoints(run_directory.checkpoints)
    if not checkpoints:
        if config.init.run:
            RunDirectory(local_run(config.init.run)).require_run("init.run")
        if config.init.embeddings and not Path(config.init.embeddings).is_file():
            raise ConfigError(f"init.embeddings: {config.init.embeddings} is not a file; give word vectors")
        return
    if not checkpoints[-1].can_be_continued:
        raise ConfigError(
            f"--workdir: {workdir} holds averaged parameters, without the state of an optimizer, so no run resumes from "
            f"them; one starts from them in another folder, with --init_from={workdir}"
        )
    if not run_directory.config.is_file():
        raise ConfigError(
            f"--workdir: {workdir} holds checkpoints but no {run_directory.config.name}; put it back, or use "
            "another folder"
        )
    require_settings(run_directory.path)
    require_plugins(run_directory.path)
    saved = load_run_config(workdir)
    clashes = [change for change in difference(saved, config) if not may_change(change[0], saved, config)]
    if clashes:
        raise ConfigError(
            f"--workdir: {workdir} holds a run with other settings; use another folder, or these:{listed(clashes)}"
        )


def with_recorded_init(config: ExperimentConfig, workdir: str) -> ExperimentConfig:
    """``config``, with the ``init`` that the run in ``workdir`` recorded, if it has checkpoints."""
    has_begun = RunDirectory(workdir).has_checkpoints()
    return replace(config, init=load_run_config(workdir).init) if has_begun else config
