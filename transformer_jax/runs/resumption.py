"""Whether settings can start or resume a run, checked before JAX starts."""

from pathlib import Path

from transformer_jax.config import ConfigError, ExperimentConfig, difference, load_run_config, may_change
from transformer_jax.config.conversion import listed
from transformer_jax.config.migration import corruptions_applied_twice
from transformer_jax.errors import complain
from transformer_jax.files.json_text import parse_json
from transformer_jax.run_directory.layout import (
    RunDirectory,
    require_plugins,
    require_run_to_start_from,
    require_settings,
)
from transformer_jax.run_directory.stored_checkpoints import stored_checkpoints


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
        raise ConfigError(
            "--workdir",
            f"{workdir} has averaged parameters without an optimizer state, from which no run resumes",
            f"start a new run in another folder with --init_from={workdir}",
        )
    if not run_directory.config.is_file():
        raise ConfigError(
            "--workdir",
            f"{workdir} has checkpoints but no {run_directory.config.name}",
            "put it back, or use another folder",
        )
    require_settings(run_directory.path)
    require_plugins(run_directory.path)
    saved = load_run_config(workdir)
    for name in corruptions_applied_twice(parse_json(run_directory.config.read_text(encoding="utf-8"))):
        complain(f"transformer-jax: {workdir}: training.corruptions named {name} twice and applied it twice; now once")
    clashes = [change for change in difference(saved, config) if not may_change(change[0], saved, config)]
    if clashes:
        raise ConfigError(
            "--workdir", f"{workdir} holds a run with other settings", f"use another folder, or these:{listed(clashes)}"
        )
