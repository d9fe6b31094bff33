"""Checkpoints on a disk: digests of their files, damage, failed saves."""

import asyncio
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.future import ChainedFuture, Future

from transformer_jax.checkpoints.format import (
    UNFINISHED,
    CheckpointError,
    is_step,
    stored_checkpoints,
    unused_name,
)
from transformer_jax.checkpoints.save_failure import SaveFailed, ending_one_of_several, is_disk_full
from transformer_jax.config.errors import first_line
from transformer_jax.runtime.distributed import is_first, is_of_another, say
from transformer_jax.runtime.file_digests import Part, changed_files, has_digests, write_digests
from transformer_jax.runtime.object_store import fetch_arrays

_GONE = "{} was removed or moved while training; put it back and run the same command"


class DigestedFolder(ocp.path.atomicity.AtomicRenameTemporaryPath):
    """A checkpoint folder whose digests are written before it gets its final name."""

    async def finalize(self) -> None:
        """Called by process 0 when all processes have written, for the checkpoint and for each item."""
        with ending_one_of_several(self.get_final()):
            if is_step(self.get_final().name):
                await asyncio.to_thread(write_digests, Path(self.get()))
            await super().finalize()


class Arrays(ocp.StandardCheckpointHandler):
    """Saves arrays; calls ``when_written`` in each process before its save counts as complete."""

    async def async_save(self, directory: Any, *args: Any, **options: Any) -> list[Future]:
        futures = await super().async_save(directory, *args, **options)
        path = str(getattr(directory, "path", directory))
        return [_Written(futures or [], partial(self.when_written, path), path)]

    def when_written(self, path: str) -> None:
        """Nothing here."""


class _Written(ChainedFuture):
    def __init__(self, futures: Sequence[Future], callback: Callable[[], None], path: str) -> None:
        super().__init__(futures, callback)
        self._path = path

    def result(self, timeout: float | None = None) -> None:
        with ending_one_of_several(self._path):
            super().result(timeout)


class DigestedArrays(Arrays):
    """Each process digests the files in its ``ocdbt.process_N``."""

    def when_written(self, path: str) -> None:
        folder = Path(path) / f"ocdbt.process_{jax.process_index()}"
        # A process without a primary replica of any array writes no files.
        if folder.is_dir():
            write_digests(folder)


class DiskFolder:
    """The folder with the checkpoints of a run; of a copy of a run in a store, arrays are downloaded before they are read.

    ``BucketFolder`` (buckets.py) overrides what differs where Orbax writes to a store.
    """

    temporary_path: type[Any] = DigestedFolder
    arrays: type[Arrays] = DigestedArrays

    def __init__(self, path: Any) -> None:
        self.path = path

    def opening(self) -> AbstractContextManager[None]:
        """Around ``prepare`` and the start of Orbax: raises StoreError where a store refuses."""
        return nullcontext()

    def prepare(self, *, read_only: bool) -> list[str]:
        """Makes the folder and moves checkpoints with damaged scores out of it; returns a sentence about each.

        Raises CheckpointError at damage with ``read_only``, or when all are damaged.
        """
        if not read_only:
            self.path.mkdir(parents=True, exist_ok=True)
        checkpoints = stored_checkpoints(self.path)
        damaged = [checkpoint.folder for checkpoint in checkpoints if not checkpoint.is_sound]
        if damaged and (read_only or len(damaged) == len(checkpoints)):
            raise CheckpointError(f"{', '.join(map(str, damaged))}: the scores in it are damaged; move it away")
        moved = damaged if is_first() else []
        return [f"checkpoint {each.name} is damaged; moved to {self.set_aside(int(each.name))}" for each in moved]

    def require_lock(self) -> None:
        """Raises SaveFailed where another process trains here: never on a disk, where the folder stays locked."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raises SaveFailed for every exception of the block but that another process has ended."""
        try:
            self.require_present()
            yield
        except SaveFailed:
            raise
        # Orbax, tensorstore and the system have different errors.
        except Exception as error:
            if is_of_another(error):
                raise
            # Python warns about the abandoned writes when they are collected.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            raise SaveFailed(self.problem_of(error)) from None

    def require_present(self) -> None:
        """Raises SaveFailed where the folder was removed: Orbax would make a new run directory."""
        if not self.path.is_dir():
            raise SaveFailed(_GONE.format(self.path.parent))

    def problem_of(self, error: BaseException) -> str:
        """One line: why the folder cannot be written, the newest complete checkpoint, and the remedy."""
        if not self.path.is_dir():
            return _GONE.format(self.path.parent)
        steps = [each.step for each in stored_checkpoints(self.path) if each.is_sound]
        newest = f"newest whole checkpoint: {steps[-1] if steps else 'none'}"
        if is_disk_full(error):
            return f"{self.path}: the disk is full; {newest}. Make room and run the same command"
        return f"{self.path}: cannot be written ({first_line(error)}); {newest}. Fix that and run the same command"

    def download(self, step: int, items: list[str]) -> None:
        """Downloads the arrays of these items if the run is a copy."""
        fetch_arrays(self.path / str(step), items)

    def require_undamaged(self, step: int, names: list[str], part: Part) -> None:
        """Raises CheckpointError, which names the files, where files of these items changed since they were written."""
        if changed := changed_files(self.path / str(step), names, part):
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise CheckpointError(f"checkpoint {step} is damaged: {', '.join(changed[:3])}{more} changed since written")

    def has_digests(self, step: int) -> bool:
        """Whether a checkpoint has digests; warns once for each folder where one has none."""
        found = has_digests(self.path / str(step))
        if not found:
            _warn_unprotected(self.path)
        return found

    def set_aside(self, step: int) -> Path:
        """Moves a checkpoint into the folder of the run, to an unused name."""
        target = unused_name(self.path, step)
        (self.path / str(step)).rename(target)
        return target

    def remove_unfinished(self) -> None:
        """Removes the folders of failed saves."""
        for folder in self.path.glob(f"[0-9]*{UNFINISHED.rstrip('-')}*"):
            shutil.rmtree(folder, ignore_errors=True)


@cache
def _warn_unprotected(directory: Path) -> None:
    origin = "of an earlier version, or written by several processes to a store"
    say(f"{directory}: checkpoints without digests ({origin}): damage to them may go unnoticed", sys.stderr)
