"""Checkpoints with Orbax: written in the background, restored onto any mesh, averaged."""

import logging
import math
import operator
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN, PreservationPolicy

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.disk import DiskFolder
from transformer_jax.checkpoints.folder import CheckpointFolder
from transformer_jax.checkpoints.save_failure import SaveFailed, end_after_failed_save, ignore_abandoned_work
from transformer_jax.config import DataError, ExperimentConfig, Metric
from transformer_jax.errors import StoreError, first_line
from transformer_jax.files.file_digests import WHOLE, Part
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.paths import in_store
from transformer_jax.run_directory.stored_checkpoints import (
    CheckpointError,
    CheckpointMismatch,
    CheckpointUnread,
    step_names,
)
from transformer_jax.runtime.distributed import (
    all_agree,
    end_with_another,
    first_goes_first,
    from_first,
    is_first,
    is_of_another,
    say,
)
from transformer_jax.training.state import TrainState

if TYPE_CHECKING:
    from transformer_jax.runtime.store_lock import StoreLock

SELECTION = ExperimentConfig().selection
"""The metric of the default task."""

Progress = dict[str, Any]
"""JSON saved with a state: the loop's counters, the config, the tokenizers, digests of the data."""

# The parameters that are trained, where ``params`` are an average of them.
TRAINED = "trained_params"


def folder_of(path: Path, lock: "StoreLock | None" = None) -> CheckpointFolder:
    """The checkpoints at ``path``, on a disk or in an object store; ``lock``: of a run there that trains."""
    if in_store(path):
        # The libraries of object stores, which a run on a disk does without.
        from transformer_jax.checkpoints.bucket_checkpoints import BucketFolder

        return BucketFolder(path, lock)
    return DiskFolder(path.absolute())


class CheckpointReader:
    """The checkpoints of a run, read by this process alone.

    Each holds three items: ``params``, ``rest`` (optimizer state, step, key) and ``progress`` (JSON).
    """

    def __init__(self, directory: Path, lock: "StoreLock | None" = None) -> None:
        # This class reports the errors that Orbax would log.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        ignore_abandoned_work()
        self._given, self._folder = directory, folder_of(directory, lock)

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, oldest first."""
        return list(map(int, step_names(self._folder.path)))

    def restore(self, step: int, like: TrainState, part: Part = WHOLE) -> tuple[TrainState, Progress]:
        """The state of ``step`` with the shapes and the shardings of ``like`` (arrays, ShapeDtypeStructs).

        Raises CheckpointError when it cannot be read, or a file is damaged in the ``part`` that this process checks.
        """
        rest = like._asdict()
        params = rest.pop("params")
        name = TRAINED if (self._folder.path / str(step) / TRAINED).is_dir() else "params"
        restored = self._read(step, {name: params, "rest": rest, "progress": None}, part)
        return TrainState(params=restored[name], **restored["rest"]), restored["progress"]

    def progress(self, step: int) -> Progress:
        """The JSON saved with ``step``."""
        return self._read(step, {"progress": None})["progress"]

    def shapes(self, step: int, item: str = "params") -> PyTree:
        """Nested dictionaries of the shapes and types of ``params`` or ``rest``, from their description alone.

        Empty for the ``rest`` of averaged parameters. Raises CheckpointError when the description cannot be read.
        """
        folder = self._folder.path / str(step) / item
        if item == "rest" and not folder.is_dir():
            return {}
        self._folder.require_undamaged(step, [f"{item}/_METADATA", f"{item}/array_metadatas"], WHOLE)
        try:
            described = ocp.StandardCheckpointHandler().metadata(folder).tree
        # A damaged file can make the reader raise anything.
        except Exception as error:
            reason = first_line(error)
            raise CheckpointError(f"{folder}: the description of the checkpoint cannot be read ({reason})") from error
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), described)

    def restore_params(self, step: int, like: PyTree) -> PyTree:
        """The parameters of ``step`` alone, with shapes and shardings of ``like``; NumPy arrays where ``like`` has them."""
        try:
            return self._read(step, {"params": like})["params"]
        except CheckpointError as error:
            # Another checkpoint of the run has the same arrays.
            is_damage = not isinstance(error, CheckpointMismatch | CheckpointUnread)
            others = [each for each in self.steps() if is_damage and 0 < each != step]
            remedy = f"; use --checkpoint={max(others)}" if others else ""
            raise type(error)(f"{self._folder.path}: {error}{remedy}") from error

    def restore_average(self, steps: Sequence[int], like: PyTree) -> PyTree:
        """The mean of the parameters of ``steps`` (Vaswani et al. 2017, section 6.1), summed in float32."""
        total = self.restore_params(steps[0], like)
        for step in steps[1:]:
            total = jax.tree.map(operator.add, total, self.restore_params(step, like))
        return total if len(steps) == 1 else jax.tree.map(lambda leaf: leaf / len(steps), total)

    def _read(self, step: int, items: dict[str, PyTree], part: Part = WHOLE) -> dict[str, Any]:
        """Items of a checkpoint, with the shapes, types and shardings of these trees; ``progress`` is JSON.

        Raises CheckpointError where one of its files changed since it was written.
        """
        folder, names = self._folder.path / str(step), list(items)
        try:
            with self._folder.listed(step):
                self._folder.require_undamaged(step, names, part)
                restored = {name: _restored(folder / name, like) for name, like in items.items()}
                has_digests = self._folder.has_digests(step)
        except (CheckpointError, StoreError):
            raise
        # A damaged file can raise anything: Orbax, tensorstore and json have different errors.
        except Exception as error:
            differing, reason = "", first_line(error)
            with suppress(OSError, DataError):
                differing = self._differing_arrays(step, items)
            if differing:
                remedy = "train again, or use the version and settings that wrote it"
                raise CheckpointMismatch(f"checkpoint {step} does not fit the model ({differing}); {remedy}") from error
            if self._seems_undamaged(step, names):
                problem = f"cannot be read, but its files seem undamaged ({reason}); run the same command again"
                raise CheckpointUnread(f"checkpoint {step} {problem}") from error
            raise CheckpointError(f"checkpoint {step} is damaged or does not fit the model ({reason})") from error
        if "params" in names and not has_digests:
            _warn_unprotected(self._folder.path)
            require_finite(step, restored["params"])
        return restored

    def _seems_undamaged(self, step: int, names: list[str]) -> bool:
        """Whether a checkpoint has digests, and no file differs from them; also where they cannot be compared now."""
        try:
            return self._folder.has_digests(step) and not self._folder.changed(step, names, WHOLE)
        except (OSError, DataError):
            return True

    def _differing_arrays(self, step: int, items: dict[str, PyTree]) -> str:
        """Arrays that only the checkpoint or only the model has, and arrays whose shapes differ."""
        texts = []
        for item in sorted({"params", TRAINED, "rest"} & items.keys()):
            saved, wanted = (
                {jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves}
                for leaves in map(jax.tree.leaves_with_path, (self.shapes(step, item), items[item]))
            )
            for owner, names in (("checkpoint", saved.keys() - wanted), ("model", wanted.keys() - saved)):
                texts += [f"only the {owner} has {', '.join(sorted(names)[:3])}"] if names else []
            others = sorted(name for name in saved.keys() & wanted if saved[name] != wanted[name])
            texts += [f"{name} is {saved[name]} in the checkpoint, {wanted[name]} in the model" for name in others[:3]]
        return "; ".join(texts)


class Checkpoints(CheckpointReader):
    """The checkpoints of a run that trains: the last ``keep_last``, and the ``keep_best`` that score best by ``selection``.

    Writing is asynchronous; a checkpoint counts only when it is complete, so a killed process leaves nothing half-written
    that is read. Several processes must all make the same calls.
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
        super().__init__(directory, lock)
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
            handlers.add(item, ocp.args.StandardSave, arrays)
        # Inside, so that the other processes get the StoreError of the first.
        with first_goes_first("checkpoints"), self._folder.opening():
            self._complaints += self._folder.prepare()
        with self._folder.opening(), self._folder.listed():
            return _Manager(self._folder, options=self._options, handler_registry=handlers)

    def writing(self) -> AbstractContextManager[None]:
        """Context in which every error that the run cannot be written raises SaveFailed."""
        return self._folder.writing()

    def save(
        self, state: TrainState, progress: Progress, score: float | None = None, evaluated: PyTree | None = None
    ) -> None:
        """Starts writing ``state`` under its step; does nothing if that step exists.

        ``evaluated``: the parameters to restore for evaluation, by default the trained ones of ``state``.

        Raises SaveFailed, as ``wait`` and ``require_saving`` do, when this save or the one before failed.
        """
        step = int(state.step)
        # Also one that is being written.
        if step in self._manager.all_steps():
            return
        self._folder.require_lock()
        rest = {name: leaf for name, leaf in state._asdict().items() if name != "params"}
        is_average = evaluated is not None and evaluated is not state.params
        items = ocp.args.Composite(
            params=ocp.args.StandardSave(evaluated if is_average else state.params),
            **({TRAINED: ocp.args.StandardSave(state.params)} if is_average else {}),
            rest=ocp.args.StandardSave(rest),
            progress=ocp.args.JsonSave(progress),
        )
        metrics = None if score is None else {self._selection.name: score}
        # Another must remain while this one is saved again with its score.
        self._all.are_kept = progress.get("is_validation_due", False)
        with self._folder.writing():
            self._manager.save(step, args=items, metrics=metrics, force=True)

    def save_params(self, step: int, params: PyTree, progress: Progress) -> None:
        """Starts writing parameters alone, for evaluation and initialization: no run resumes from them. Raises SaveFailed."""
        items = ocp.args.Composite(params=ocp.args.StandardSave(params), progress=ocp.args.JsonSave(progress))
        with self._folder.writing():
            self._manager.save(step, args=items, force=True)

    def remove_unless_only(self, step: int) -> None:
        """Deletes a checkpoint, so that it can be saved again with its score, unless it is the only one."""
        if len(self.steps()) > 1:
            self._folder.require_lock()
            with self._folder.writing():
                self._manager.delete(step)

    def wait(self) -> None:
        """Returns when everything that was saved is on disk."""
        with self._folder.writing():
            self._manager.wait_until_finished()

    def require_saving(self) -> None:
        """Raises SaveFailed when writing in the background has failed; does not wait."""
        # The background thread of one of several processes ends its process: see _Manager.
        if jax.process_count() == 1:
            with self._folder.writing():
                self._manager.check_for_errors()

    def close(self) -> None:
        """Waits for writing to finish and closes the folder."""
        try:
            self._manager.close()
        except Exception as error:
            if is_of_another(error):
                raise
            raise SaveFailed(self._folder.problem_of(error)) from None
        finally:
            if is_first():
                self._folder.remove_unfinished()

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, oldest first, as process 0 sees them."""
        return from_first(super().steps, "checkpoints")

    def restore_newest(self, like: TrainState) -> tuple[TrainState, Progress, list[str]]:
        """The newest checkpoint that can be read, and a sentence about each newer one that could not.

        Unreadable ones are moved beside the checkpoints once an older one was read; nothing is deleted. Raises CheckpointError,
        and moves nothing, when none can be read: then the cause is likely another one; and CheckpointUnread when a process
        cannot read one whose files are as written.
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
                raise unread or CheckpointUnread(f"{by_another}; run the same command again")
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


@cache
def _warn_unprotected(folder: Any) -> None:
    origin = "of an earlier version, or copied from a store"
    say(f"{folder}: checkpoints without digests ({origin}): damage to them may go unnoticed", sys.stderr)


@dataclass
class _All(PreservationPolicy):
    """Keeps all checkpoints while ``are_kept``."""

    are_kept: bool = False

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        return [self.are_kept] * len(checkpoints)


class _Manager(ocp.CheckpointManager):
    """Ends a process that cannot write a checkpoint, if it is one of several; then the others end too.

    Orbax's barriers would wait ten minutes for it.
    """

    def __init__(self, folder: CheckpointFolder, **options: Any) -> None:
        self._folder = folder
        super().__init__(folder.path, **options)

    def _wait_for_checkpointers(self) -> None:
        # Called in the background, in each process, before such a barrier.
        try:
            super()._wait_for_checkpointers()
        except Exception as error:
            if jax.process_count() == 1:
                raise
            self._folder.release()
            if is_of_another(error):
                end_with_another(error)
            end_after_failed_save(partial(self._folder.problem_of, error))


def on_host(shapes: PyTree) -> PyTree:
    """Uninitialized NumPy arrays of these shapes, for ``restore_params`` into host memory."""
    return jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)


def _restored(folder: Path, like: PyTree) -> Any:
    """The arrays in a folder with the shapes, types and shardings of ``like``; without arrays its JSON."""
    if like is None:
        return parse_json((folder / "metadata").read_bytes())
    args = ocp.args.PyTreeRestore(like, restore_args=ocp.checkpoint_utils.construct_restore_args(like))
    return ocp.PyTreeCheckpointHandler().restore(epath.Path(folder), args=args)


def require_finite(step: int, params: PyTree) -> None:
    """Raises CheckpointError where parameters are not finite."""
    leaves = [leaf for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    parts = [[s.data for s in leaf.addressable_shards] if isinstance(leaf, jax.Array) else [leaf] for leaf in leaves]
    if not all(bool(jnp.isfinite(part).all()) for held in parts for part in held):
        raise CheckpointError(f"restored parameters are not finite: checkpoint {step} is damaged")
