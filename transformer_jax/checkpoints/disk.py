"""Checkpoints written to a disk: digests of their files, failed saves."""

import asyncio
import os
import shutil
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.future import ChainedFuture, Future

from transformer_jax.checkpoints.folder import CheckpointFolder
from transformer_jax.checkpoints.save_failure import SaveFailed, is_disk_full
from transformer_jax.errors import first_line
from transformer_jax.files.file_digests import write_digests
from transformer_jax.run_directory.stored_checkpoints import (
    IN_PROGRESS,
    UNFINISHED,
    CheckpointError,
    is_step,
    stored_checkpoints,
    unused_name,
)
from transformer_jax.runtime.distributed import is_first
from transformer_jax.runtime.process_group import STATUS_TO_RESTART

_GONE = "{} was removed or moved while training; put it back and run the same command"


class DigestedFolder(ocp.path.atomicity.AtomicRenameTemporaryPath):
    """A checkpoint folder whose digests are written before it gets its final name."""

    async def finalize(self) -> None:
        """Finish the checkpoint or an item. Called by process 0 when all processes have written."""
        if is_step(self.get_final().name):
            await asyncio.to_thread(write_digests, Path(self.get()))
        await super().finalize()


class DigestedArrays(ocp.PyTreeCheckpointHandler):
    """Saves arrays. A process digests the files in its ``ocdbt.process_N`` before its save ends."""

    async def async_save(self, directory: Any, *args: Any, **options: Any) -> list[Future]:
        futures = await super().async_save(directory, *args, **options)
        path = Path(getattr(directory, "path", directory))
        return [ChainedFuture(futures or [], partial(_digest_if_written, path))]


def _digest_if_written(path: Path) -> None:
    folder = path / f"ocdbt.process_{jax.process_index()}"
    # A process without a primary replica of any array writes no files.
    if folder.is_dir():
        write_digests(folder)


class DiskFolder(CheckpointFolder):
    """Checkpoints on a disk, with digests."""

    temporary_path = DigestedFolder
    _opened: int | None = None
    """The run directory, opened so that a later folder of the same name has another inode."""

    def arrays(self) -> DigestedArrays:
        return DigestedArrays()

    def prepare(self) -> list[str]:
        """Make the folder and move unfinished or damaged checkpoints away.

        Returns a sentence about every moved one. Raises CheckpointError when all are damaged.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if self._opened is None:
            self._opened = os.open(self.path.parent, os.O_RDONLY)
            weakref.finalize(self, os.close, self._opened)
        checkpoints = stored_checkpoints(self.path)
        damaged = [checkpoint.folder for checkpoint in checkpoints if not checkpoint.is_sound]
        if damaged and len(damaged) == len(checkpoints):
            raise CheckpointError(f"{', '.join(map(str, damaged))}: the scores in it are damaged; move it away")
        unfinished = [path.parent for path in self.path.glob(f"[0-9]*/{IN_PROGRESS}") if is_step(path.parent.name)]
        moved = dict.fromkeys(damaged, "is damaged") | dict.fromkeys(unfinished, "is unfinished")
        return [
            f"checkpoint {folder.name} {problem}; moved to {self.set_aside(int(folder.name))}"
            for folder, problem in moved.items()
            if is_first()
        ]

    def is_present(self) -> bool:
        """Return whether the run directory is the prepared one: a save recreates a removed one."""
        if self._opened is None or not self.path.is_dir():
            return self.path.is_dir()
        try:
            return os.path.samestat(os.fstat(self._opened), self.path.parent.stat())
        except FileNotFoundError:
            return False

    def require_present(self) -> None:
        # Orbax would make a new run directory.
        if not self.is_present():
            raise SaveFailed(_GONE.format(self.path.parent))

    def failure(self, error: BaseException) -> SaveFailed:
        # Orbax measures its time limits by the time of day, which may have been set.
        return SaveFailed(self.problem_of(error), STATUS_TO_RESTART if isinstance(error, TimeoutError) else 1)

    def problem_of(self, error: BaseException) -> str:
        """Return why the folder cannot be written, and the remedy."""
        if not self.is_present():
            return _GONE.format(self.path.parent)
        steps = [checkpoint.step for checkpoint in stored_checkpoints(self.path) if checkpoint.is_sound]
        newest = f"newest whole checkpoint: {steps[-1] if steps else 'none'}"
        if is_disk_full(error):
            # A cache or a scratch folder may be on another disk.
            file = str(getattr(error, "filename", None) or self.path)
            disk = self.path if Path(file).is_relative_to(self.path.parent) else file
            return f"{disk}: the disk is full; {newest}. Make room and run the same command"
        return f"{self.path}: cannot be written ({first_line(error)}); {newest}. Fix that and run the same command"

    def set_aside(self, step: int) -> Path:
        target = unused_name(self.path, step)
        (self.path / str(step)).rename(target)
        return target

    def remove_unfinished(self) -> None:
        for folder in self.path.glob(f"[0-9]*{UNFINISHED.rstrip('-')}*"):
            shutil.rmtree(folder, ignore_errors=True)
