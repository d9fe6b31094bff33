"""What the folder of a run holds: nothing foreign, the settings of its checkpoints, and nothing after a failed start."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from transformer_jax.checkpoints.format import step_names, written_settings
from transformer_jax.config import ConfigError, difference, load_run_config, may_change
from transformer_jax.config.recipes import CONFIG_FILE

# What a start may leave before it writes the settings; the last is of a file system of its own.
BEFORE_SETTINGS = ("train.lock", "checkpoints", "outcome.json", "lost+found")
# What shells and schedulers write there, and unfinished files.
NO_RUN = (".partial", ".log", ".out", ".err")
# Set by --trust_config, also for the processes that a command starts.
TRUST_CONFIG = "TRANSFORMER_JAX_TRUST_CONFIG"


def require_own(folder: Path) -> None:
    """Raises ConfigError where the folder holds files, hidden ones apart, and neither settings nor checkpoints of a run."""
    entries = sorted(entry.name for entry in folder.glob("[!.]*"))
    foreign = [name for name in entries if name not in BEFORE_SETTINGS and not name.endswith(NO_RUN)]
    if foreign and not _has_begun(folder):
        raise ConfigError(
            f"--workdir: {folder} holds other files than those of a run ({', '.join(foreign[:8])}); give a new or empty "
            "folder"
        )


def require_settings(folder: Path) -> None:
    """Raises ConfigError, which names the keys, where the settings are not those of the newest sound checkpoint.

    Not for settings that may change when a run resumes, nor with ``--trust_config``.
    """
    step, written = written_settings(folder / "checkpoints")
    if written is None or os.environ.get(TRUST_CONFIG):
        return
    here = load_run_config(folder)
    changed = [each for each in difference(written, here) if not may_change(each[0], written, here)]
    if changed:
        lines = "".join(f"\n  {key}: {now!r}, in the checkpoint {before!r}" for key, before, now in changed)
        raise ConfigError(
            f"{folder / CONFIG_FILE}: not the settings that checkpoint {step} was written with; put these back, or "
            f"use them as they are with --trust_config:{lines}"
        )


def remove_unused(made: Iterable[Path], folder: Path) -> None:
    """Removes what a start has made, a lock and folders, the innermost first, unless the run has begun; empty folders only."""
    if _has_begun(folder):
        return
    with suppress(OSError):
        checkpoints = folder / "checkpoints"
        if checkpoints.is_dir():
            checkpoints.rmdir()
        for path in made:
            path.rmdir() if path.is_dir() else path.unlink()


def _has_begun(folder: Path) -> bool:
    """Whether a start got as far as to write the settings."""
    return (folder / CONFIG_FILE).is_file() or bool(step_names(folder / "checkpoints"))
