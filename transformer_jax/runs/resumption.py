"""The settings of a run that is started or resumed, checked before JAX starts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_jax.checkpoints.format import stored_checkpoints
from transformer_jax.config import ConfigError, ExperimentConfig, difference, load_run_config, may_change
from transformer_jax.config.conversion import listed
from transformer_jax.data.corpora import completed
from transformer_jax.runs.run_directory import RunDirectory, local_run, require_plugins, require_settings
from transformer_jax.tasks.sizing import sized


def settings_to_train(
    recipe: str | Mapping[str, Any],
    overrides: Sequence[tuple[str, str]],
    workdir: str,
    budget: str | None,
    *,
    is_distributed: bool = False,
) -> tuple[ExperimentConfig, Mapping[str, Any], list[str]]:
    """The settings of a run, with sizes for ``budget`` and the languages of its text; a record for ``run.json``; remarks.

    A run that resumes keeps the ``init`` with which it began. Raises ConfigError when the settings cannot resume the run in
    ``workdir``; DataError when the text cannot be read.
    """
    found = sized(recipe, overrides, workdir, budget, is_distributed=is_distributed)
    config, remark = completed(found.config)
    require_same_run(config, workdir)
    if RunDirectory(workdir).has_checkpoints():
        config = replace(config, init=load_run_config(workdir).init)
    return config, found.record, [each for each in (found.remark, remark) if each]


def require_same_run(config: ExperimentConfig, workdir: str) -> None:
    """Raises ConfigError, with the differences, when ``workdir`` has checkpoints of other settings.

    If it has none, raises ConfigError where ``init.run`` or ``init.embeddings`` does not exist.
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
            f"--workdir: {workdir} has averaged parameters without an optimizer state, from which no run resumes; start a new "
            f"run in another folder with --init_from={workdir}"
        )
    if not run_directory.config.is_file():
        raise ConfigError(
            f"--workdir: {workdir} has checkpoints but no {run_directory.config.name}; put it back, or use another folder"
        )
    require_settings(run_directory.path)
    require_plugins(run_directory.path)
    saved = load_run_config(workdir)
    clashes = [change for change in difference(saved, config) if not may_change(change[0], saved, config)]
    if clashes:
        raise ConfigError(
            f"--workdir: {workdir} holds a run with other settings; use another folder, or these:{listed(clashes)}"
        )
