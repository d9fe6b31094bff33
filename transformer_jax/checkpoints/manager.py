"""Checkpoints written with Orbax in the background."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN, PreservationPolicy

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.disk import DiskFolder
from transformer_jax.checkpoints.folder import CheckpointFolder
from transformer_jax.checkpoints.reader import TRAINED, CheckpointReader, Progress
from transformer_jax.checkpoints.save_failure import end_after_failed_save
from transformer_jax.config import ExperimentConfig, Metric
from transformer_jax.files.file_digests import Part
from transformer_jax.files.paths import in_store
from transformer_jax.run_directory.stored_checkpoints import CheckpointError, CheckpointUnread
from transformer_jax.runtime.distributed import all_agree, first_goes_first, from_first, is_first
from transformer_jax.runtime.process_group import end_with_another, is_of_another
from transformer_jax.training.state import TrainState

if TYPE_CHECKING:
    from transformer_jax.runtime.store_lock import StoreLock

SELECTION = ExperimentConfig().selection
"""The metric of the default task."""


def folder_of(path: Path, lock: "StoreLock | None" = None) -> CheckpointFolder:
    """Return the folder at ``path``, on a disk or in a store with the ``lock`` of the run."""
    if in_store(path):
        # The libraries of object stores, which a run on a disk does without.
        from transformer_jax.checkpoints.bucket_checkpoints import BucketFolder

        return BucketFolder(path, lock)
    return DiskFolder(path.absolute())


class Checkpoints(CheckpointReader):
    """The checkpoints of a run that trains: the last ``keep_last``, and the ``keep_best`` best.

    ``selection`` decides which are best. Writing is asynchronous. A checkpoint counts only when it
    is complete, so a killed process leaves nothing half-written that is read. Several processes
    must all make the same calls.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keep_last: int = 5,
        keep_best: int = 1,
        selection: Metric = SELECTION,
        lock: "StoreLock | None" = None,
    ) -> None:
        super().__init__(directory)
        self._folder = folder_of(directory, lock)
        self._selection = selection
        sign = 1 if selection.direction == "maximize" else -1

        def signed_score(metrics: dict[str, float]) -> float:
            score = metrics[selection.name]
            return -math.inf if math.isnan(score) else sign * score

        best = BestN(get_metric_fn=signed_score, n=keep_best, keep_checkpoints_without_metrics=False)
        self._all = _All()
        self._options = ocp.CheckpointManagerOptions(
            preservation_policy=AnyPreservationPolicy([LatestN(keep_last), best, self._all]),
            best_fn=signed_score,
            cleanup_tmp_directories=True,
            temporary_path_class=self._folder.temporary_path,
        )
        self._complaints: list[str] = []
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        handlers, arrays = ocp.DefaultCheckpointHandlerRegistry(), self._folder.arrays()
        for item in ("params", TRAINED, "rest"):
            handlers.add(item, ocp.args.PyTreeSave, arrays)
        # Inside, so that the other processes get the StoreError of the first.
        with first_goes_first("checkpoints"), self._folder.opening():
            self._complaints += self._folder.prepare()
        with self._folder.opening(), self._files.listed() as path:
            return _Manager(self._folder, path, options=self._options, handler_registry=handlers)

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which every error of writing raises SaveFailed."""
        return self._folder.writing()

    def save(
        self, state: TrainState, progress: Progress, score: float | None = None, evaluated: PyTree | None = None
    ) -> None:
        """Start writing ``state`` under its step, unless that step exists.

        ``evaluated``: the parameters to restore for evaluation, by default the parameters of
        ``state``. Raises SaveFailed, as ``wait`` and ``require_saving`` do, when this save or the
        one before failed.
        """
        step = int(state.step)
        # Also one that is being written.
        if step in self._manager.all_steps():
            return
        self._folder.require_lock()
        rest = {name: leaf for name, leaf in state._asdict().items() if name != "params"}
        is_average = evaluated is not None and evaluated is not state.params
        items = ocp.args.Composite(
            params=ocp.args.PyTreeSave(evaluated if is_average else state.params),
            **({TRAINED: ocp.args.PyTreeSave(state.params)} if is_average else {}),
            rest=ocp.args.PyTreeSave(rest),
            progress=ocp.args.JsonSave(progress),
        )
        metrics = None if score is None else {self._selection.name: score}
        # Another must remain while this one is saved again with its score.
        self._all.are_kept = progress.get("is_validation_due", False)
        with self._folder.writing():
            self._manager.save(step, args=items, metrics=metrics, force=True)

    def save_params(self, step: int, params: PyTree, progress: Progress) -> None:
        """Start writing parameters alone, from which no run resumes. Raises SaveFailed."""
        items = ocp.args.Composite(params=ocp.args.PyTreeSave(params), progress=ocp.args.JsonSave(progress))
        with self._folder.writing():
            self._manager.save(step, args=items, force=True)

    def remove_unless_only(self, step: int) -> None:
        """Delete a checkpoint, so that it can be saved again, unless it is the only one."""
        if len(self.steps()) > 1:
            self._folder.require_lock()
            with self._folder.writing():
                self._manager.delete(step)

    def wait(self) -> None:
        """Wait until everything that was saved is on disk."""
        with self._folder.writing():
            self._manager.wait_until_finished()

    def require_saving(self) -> None:
        """Raise SaveFailed when writing in the background has failed. Does not wait."""
        # The background thread of one of several processes ends its process: see _Manager.
        if jax.process_count() == 1:
            with self._folder.writing():
                self._manager.check_for_errors()

    def close(self) -> None:
        """Wait for writing to finish and close the folder."""
        try:
            self._manager.close()
        except Exception as error:
            if is_of_another(error):
                raise
            raise self._folder.failure(error) from None
        finally:
            if is_first():
                self._folder.remove_unfinished()

    def steps(self) -> list[int]:
        """Return the steps of the complete checkpoints, oldest first, as process 0 sees them."""
        return from_first(super().steps, "checkpoints")

    def restore_newest(self, like: TrainState) -> tuple[TrainState, Progress, list[str]]:
        """Return the newest checkpoint that can be read, and a sentence about each unreadable one.

        Unreadable ones are moved beside the checkpoints once an older one was read; nothing is
        deleted. Raises CheckpointError, and moves nothing, when none can be read: then the cause is
        likely another one. Raises CheckpointUnread when a process cannot read one whose files are
        as written.
        """
        damaged: dict[int, str] = {}
        steps, part = self.steps(), Part(jax.process_index(), jax.process_count())
        for step in reversed(steps):
            problem: CheckpointError | None = None
            try:
                state, progress = self.restore(step, like, part)
            except CheckpointError as error:
                problem = error
            if all_agree(not problem, "checkpoint"):
                break
            by_another = f"checkpoint {step} cannot be read by another process"
            unread = problem if isinstance(problem, CheckpointUnread) else None
            if not all_agree(not unread, "checkpoint"):
                raise CheckpointUnread(f"{self._folder.path}: {unread or f'{by_another}; run the same command again'}")
            damaged[step] = str(problem or by_another)
        if len(damaged) < len(steps):
            complaints = [f"{problem}; moved to {self._set_aside(number)}" for number, problem in damaged.items()]
            return state, progress, self._complaints + complaints
        raise CheckpointError(f"{self._folder.path}: no checkpoint can be read: {'; '.join(damaged.values())}")

    def _set_aside(self, step: int) -> Path:
        self._manager.close()
        target = self._folder.set_aside(step) if is_first() else self._folder.path / str(step)
        self._manager = self._open()
        return target


@dataclass
class _All(PreservationPolicy):
    """A policy that keeps all checkpoints while ``are_kept``."""

    are_kept: bool = False

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        return [self.are_kept] * len(checkpoints)


class _Manager(ocp.CheckpointManager):
    """A manager that ends its process, and thereby all others, when it cannot write.

    The barriers of Orbax would wait ten minutes for the process.
    """

    def __init__(self, folder: CheckpointFolder, path: Any, **options: Any) -> None:
        self._folder = folder
        super().__init__(path, **options)

    def _wait_for_checkpointers(self) -> None:
        # Called in the background, in each process, before a barrier of ten minutes.
        try:
            super()._wait_for_checkpointers()
        except Exception as error:
            if jax.process_count() == 1:
                raise
            self._folder.release()
            if is_of_another(error):
                end_with_another(error)
            end_after_failed_save(partial(self._folder.failure, error))
