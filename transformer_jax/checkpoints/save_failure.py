"""Errors of writing checkpoints, on a full disk or into a removed folder, as one sentence."""

import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, DataError
from transformer_jax.files.atomic_files import DISK_FULL
from transformer_jax.files.paths import in_store
from transformer_jax.run_directory.stored_checkpoints import bytes_in
from transformer_jax.runtime.process_group import STATUS_TO_RESTART, end_at_once

# tensorstore's errors have no number, only the message of the system.
_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "File too large")


class SaveFailed(DataError):
    """The newest state cannot be saved, and the run ends with ``status``."""

    def __init__(self, problem: str, status: int = 1) -> None:
        super().__init__(problem)
        self.status = status


def failed_in_store(problem: str, *, is_outage: bool) -> SaveFailed:
    """Return the error of a run that a store ends. After an outage a scheduler restarts it."""
    when, status = ("answers", STATUS_TO_RESTART) if is_outage else ("allows it", 1)
    return SaveFailed(f"{problem}; when the store {when}, run the same command", status)


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error, of any library, means that the disk is full."""
    number = error.errno if isinstance(error, OSError) else None
    return number in DISK_FULL or any(text in str(error) for text in _FULL_TEXTS)


def end_after_failed_save(failure: Callable[[], SaveFailed]) -> NoReturn:
    """Print why this one of several processes cannot write, and end it."""
    status = 1
    try:
        problem = failure()
        status = problem.status
        # Standard error may be on the full disk.
        with suppress(OSError):
            sys.stderr.write(f"transformer-jax: {problem}\n")
    finally:
        end_at_once(status)


def require_free_space(workdir: Path, state: PyTree, kept: int) -> list[str]:
    """Return a warning if the disk cannot hold ``kept`` checkpoints of the arrays ``state``.

    Raises ConfigError if not even the next one fits. A store is not checked.
    """
    if in_store(workdir):
        return []
    state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    free = shutil.disk_usage(workdir).free
    if free < state_bytes:
        raise ConfigError(
            "--workdir",
            f"{workdir} has {free / 1e9:.3g} GB free, and one checkpoint needs {state_bytes / 1e9:.3g} GB",
            "make room",
        )
    # One more than is kept: an old checkpoint is deleted once the new one is complete.
    needed = (kept + 1) * state_bytes
    if free + bytes_in(workdir / "checkpoints") < needed:
        return [
            f"{workdir} has {free / 1e9:.3g} GB free; {kept} checkpoints and one being written need {needed / 1e9:.3g} GB"
        ]
    return []
