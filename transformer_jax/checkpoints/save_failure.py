"""Errors of writing checkpoints, on a full disk or into a removed folder, as one sentence instead of tracebacks."""

import errno
import logging
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.format import bytes_in, stored_checkpoints
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.errors import first_line
from transformer_jax.runs.run_directory import RunDirectory, write_json

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# tensorstore's errors have no number, only the message of the system.
_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "File too large")
_GONE = "{} was removed or moved while training; put it back and run the same command"


class SaveFailed(DataError):
    """The newest state cannot be saved, and the run ends. The message has the cause and the newest checkpoint."""


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, of any library, means that the disk is full."""
    number = error.errno if isinstance(error, OSError) else None
    return number in _FULL or any(text in str(error) for text in _FULL_TEXTS)


def _is_news(record: logging.LogRecord) -> bool:
    return "exception was never retrieved" not in record.getMessage()


def ignore_abandoned_work() -> None:
    """Suppresses the tracebacks of reads and writes that are still in progress when another one has failed.

    tensorstore's threads report them to a closed event loop, asyncio to its log.
    """
    logging.getLogger("asyncio").addFilter(_is_news)
    if not getattr(sys.unraisablehook, "ignores_abandoned_work", False):
        others = sys.unraisablehook

        def hook(unraisable: "sys.UnraisableHookArgs") -> None:
            if str(unraisable.exc_value) != "Event loop is closed":
                others(unraisable)

        hook.ignores_abandoned_work = True  # type: ignore[attr-defined]
        sys.unraisablehook = hook


@contextmanager
def reported(checkpoints: Path) -> Iterator[None]:
    """Raises SaveFailed for every exception of the block."""
    try:
        if isinstance(checkpoints, Path) and not checkpoints.is_dir():
            # Orbax would make a new run directory.
            raise SaveFailed(_GONE.format(checkpoints.parent))
        yield
    except SaveFailed:
        raise
    # Orbax, tensorstore and the system have different errors.
    except Exception as error:
        # Python warns about the abandoned writes when they are collected.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        raise SaveFailed(problem_of(checkpoints, error)) from None


def problem_of(checkpoints: Path, error: BaseException) -> str:
    """One line: why the folder cannot be written, the newest complete checkpoint, and the remedy."""
    reason = first_line(error)
    if not isinstance(checkpoints, Path):
        return f"{checkpoints}: cannot be written ({reason}); when the store answers, run the same command"
    if not checkpoints.is_dir():
        return _GONE.format(checkpoints.parent)
    steps = [each.step for each in stored_checkpoints(checkpoints) if each.is_sound]
    newest = f"newest whole checkpoint: {steps[-1] if steps else 'none'}"
    if is_disk_full(error):
        return f"{checkpoints}: the disk is full; {newest}. Make room and run the same command"
    return f"{checkpoints}: cannot be written ({reason}); {newest}. Fix that and run the same command"


def require_free_space(workdir: Path, state: PyTree, kept: int) -> list[str]:
    """A warning where the disk cannot hold ``kept`` checkpoints; raises ConfigError where not even the next one fits."""
    state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    free = shutil.disk_usage(workdir).free
    if free < state_bytes:
        raise ConfigError(
            f"--workdir: {workdir} has {free / 1e9:.3g} GB free, and one checkpoint needs {state_bytes / 1e9:.3g} GB; make room"
        )
    # One more than is kept: an old checkpoint is deleted once the new one is complete.
    needed = (kept + 1) * state_bytes
    if free + bytes_in(workdir / "checkpoints") < needed:
        return [
            f"{workdir} has {free / 1e9:.3g} GB free; {kept} checkpoints and one being written need {needed / 1e9:.3g} GB"
        ]
    return []


def record_failure(run: RunDirectory, error: Exception) -> str:
    """One line on why nothing more can be saved, also written to ``outcome.json`` if possible; raises any other error again."""
    is_gone = not run.path.is_dir()
    if not (isinstance(error, SaveFailed) or is_disk_full(error) or is_gone):
        raise error
    problem = str(error) if isinstance(error, SaveFailed) else problem_of(run.checkpoints, error)
    if not is_gone:
        with suppress(OSError):
            steps = run.checkpoint_steps()
            write_json(run.outcome, {"step": steps[-1] if steps else 0, "reason": "failed", "problem": problem})
    return problem
