"""Checkpoints with Orbax: written in the background, restored onto any mesh, averaged."""

import logging
import math
import operator
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN, PreservationPolicy

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.disk import DiskFolder
from transformer_jax.checkpoints.folder import CheckpointFolder
from transformer_jax.checkpoints.format import CheckpointError, CheckpointMismatch, CheckpointUnread
from transformer_jax.checkpoints.save_failure import SaveFailed, end_after_failed_save, ignore_abandoned_work
from transformer_jax.config import DataError, ExperimentConfig, Metric
from transformer_jax.config.errors import first_line
from transformer_jax.runtime.distributed import (
    all_agree,
    end_with_another,
    first_goes_first,
    from_first,
    is_first,
    is_of_another,
    say,
)
from transformer_jax.runtime.file_digests import WHOLE, Part
from transformer_jax.runtime.open_copies import StoreError, address_of_checkpoints
from transformer_jax.training.state import TrainState

SELECTION = ExperimentConfig().selection
"""The metric of the default task."""

Progress = dict[str, Any]
"""JSON saved with a state: the loop's counters, the config, the tokenizers, digests of the data."""

# The parameters that are trained, where ``params`` are an average of them.
TRAINED = "trained_params"


def folder_of(path: Path) -> CheckpointFolder:
    """The checkpoints at ``path``, a folder on a disk or of the local copy of a run in an object store."""
    if address := address_of_checkpoints(path):
        # fsspec and epath, which a run on a disk does without.
        from transformer_jax.checkpoints.buckets import BucketFolder

        return BucketFolder(address, path)
    return DiskFolder(path)


class Checkpoints:
    """The checkpoints of one run: the last ``keep_last``, and the ``keep_best`` that score best by ``selection``.

    Each holds three items: ``params``, ``rest`` (optimizer state, step, key) and ``progress`` (JSON). Writing is asynchronous;
    a folder gets its final name only when it is complete, so a killed process leaves nothing half-written under it.
    Several processes must all make the same calls; with ``read_only`` each reads by itself.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keep_last: int = 5,
        keep_best: int = 1,
        selection: Metric = SELECTION,
        read_only: bool = False,
    ) -> None:
        # This class reports the errors that Orbax would log.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        ignore_abandoned_work()
        self._given = Path(directory).absolute()
        self._folder = folder_of(self._given)
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
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
            temporary_path_class=self._folder.temporary_path,
            multiprocessing_options=alone() if read_only else ocp.options.MultiprocessingOptions(),
        )
        self._complaints: list[str] = []
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        read_only = self._options.read_only
        handlers, arrays = ocp.DefaultCheckpointHandlerRegistry(), self._folder.arrays()
        for item in ("params", TRAINED, "rest"):
            handlers.add(item, ocp.args.StandardSave, arrays)
            handlers.add(item, ocp.args.PyTreeRestore, ocp.PyTreeCheckpointHandler())
        # Inside, so that the other processes get the StoreError of the first.
        with nullcontext() if read_only else first_goes_first("checkpoints"), self._folder.opening():
            self._complaints += self._folder.prepare(read_only=read_only)
        with self._folder.opening():
            return _Manager(self._folder, options=self._options, handler_registry=handlers)

    def save(
        self, state: TrainState, progress: Progress, score: float | None = None, evaluated: PyTree | None = None
    ) -> None:
        """Starts writing ``state`` under its step; does nothing if that step exists.

        ``evaluated``: the parameters to restore for evaluation, by default the trained ones of ``state``.

        Raises SaveFailed, as ``wait`` and ``require_saving`` do, when this save or the one before failed.
        """
        step = int(state.step)
        if step in self.steps():
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
            if not self._options.read_only and is_first():
                self._folder.remove_unfinished()

    def steps(self) -> list[int]:
        """Steps of the checkpoints, oldest first."""
        steps = sorted(self._manager.all_steps())
        return steps if self._options.read_only else from_first(lambda: steps, "checkpoints")

    def restore(self, step: int, like: TrainState, part: Part = WHOLE) -> tuple[TrainState, Progress]:
        """The state of ``step`` with the shapes and the shardings of ``like`` (arrays, ShapeDtypeStructs).

        Raises CheckpointError when it cannot be read, or a file is damaged in the ``part`` that this process checks.
        """
        rest = like._asdict()
        params = rest.pop("params")
        name = TRAINED if (self._folder.path / str(step) / TRAINED).is_dir() else "params"
        items = ocp.args.Composite(
            **{name: _as_described(params)},
            rest=_as_described(rest),
            progress=ocp.args.JsonRestore(),
        )
        restored = self._read(step, items, part)
        return TrainState(params=restored[name], **restored["rest"]), restored["progress"]

    def restore_newest(self, like: TrainState) -> tuple[TrainState, Progress, list[str]]:
        """The newest checkpoint that can be read, and a sentence about each newer one that could not.

        Unreadable ones are moved beside the checkpoints once an older one was read; nothing is deleted. Raises CheckpointError,
        and moves nothing, when none can be read: then the cause is likely another one; and CheckpointUnread when a process
        cannot read one whose files are as written.
        """
        damaged: dict[int, str] = {}
        steps, part = self.steps(), Part(jax.process_index(), jax.process_count())
        # A manager of this process alone: in a shared one, the others would wait for a process that cannot read.
        with closing(Checkpoints(self._given, read_only=True)) as reader:
            for step in reversed(steps):
                problem: CheckpointError | None = None
                try:
                    state, progress = reader.restore(step, like, part)
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

    def progress(self, step: int) -> Progress:
        """The JSON saved with ``step``."""
        args = ocp.args.Composite(progress=ocp.args.JsonRestore())
        return self._read(step, args)["progress"]

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
            return self._read(step, ocp.args.Composite(params=_as_described(like)))["params"]
        except CheckpointError as error:
            # Another checkpoint of the run has the same arrays.
            is_damage = not isinstance(error, CheckpointMismatch | CheckpointUnread)
            others = [each for each in self._manager.all_steps() if is_damage and 0 < each != step]
            remedy = f"; use --checkpoint={max(others)}" if others else ""
            raise type(error)(f"{self._folder.path}: {error}{remedy}") from error

    def restore_average(self, steps: Sequence[int], like: PyTree) -> PyTree:
        """The mean of the parameters of ``steps`` (Vaswani et al. 2017, section 6.1), summed in float32."""
        total = self.restore_params(steps[0], like)
        for step in steps[1:]:
            total = jax.tree.map(operator.add, total, self.restore_params(step, like))
        return total if len(steps) == 1 else jax.tree.map(lambda leaf: leaf / len(steps), total)

    def _read(self, step: int, items: ocp.args.Composite, part: Part = WHOLE) -> Any:
        """Items of a checkpoint; raises CheckpointError where one of its files changed since it was written."""
        names = list(items.keys())
        try:
            self._folder.require_undamaged(step, names, part)
            restored = self._manager.restore(step, args=items)
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
        if "params" in names and not self._folder.has_digests(step):
            _warn_unprotected(self._folder.path)
            require_finite(step, restored["params"])
        return restored

    def _seems_undamaged(self, step: int, names: list[str]) -> bool:
        """Whether a checkpoint has digests, and no file differs from them; also where they cannot be compared now."""
        try:
            return self._folder.has_digests(step) and not self._folder.changed(step, names, WHOLE)
        except (OSError, DataError):
            return True

    def _differing_arrays(self, step: int, items: ocp.args.Composite) -> str:
        """Arrays that only the checkpoint or only the model has, and arrays whose shapes differ."""
        texts = []
        for item in sorted({"params", TRAINED, "rest"} & set(items.keys())):
            saved, wanted = (
                {jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves}
                for leaves in map(jax.tree.leaves_with_path, (self.shapes(step, item), items[item].item))
            )
            for owner, names in (("checkpoint", saved.keys() - wanted), ("model", wanted.keys() - saved)):
                texts += [f"only the {owner} has {', '.join(sorted(names)[:3])}"] if names else []
            others = sorted(name for name in saved.keys() & wanted if saved[name] != wanted[name])
            texts += [f"{name} is {saved[name]} in the checkpoint, {wanted[name]} in the model" for name in others[:3]]
        return "; ".join(texts)

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
            if is_of_another(error):
                end_with_another(error)
            end_after_failed_save(partial(self._folder.problem_of, error))


def on_host(shapes: PyTree) -> PyTree:
    """Uninitialized NumPy arrays of these shapes, for ``restore_params`` into host memory."""
    return jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)


def _as_described(tree: PyTree) -> ocp.args.PyTreeRestore:
    """Arguments to restore arrays with the shapes, types and shardings of ``tree``."""
    return ocp.args.PyTreeRestore(tree, restore_args=ocp.checkpoint_utils.construct_restore_args(tree))


def alone() -> ocp.options.MultiprocessingOptions:
    """Options for reading and writing without the other processes."""
    index = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"process {index}"
    )


def require_finite(step: int, params: PyTree) -> None:
    """Raises CheckpointError where parameters are not finite."""
    leaves = [leaf for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    parts = [[s.data for s in leaf.addressable_shards] if isinstance(leaf, jax.Array) else [leaf] for leaf in leaves]
    if not all(bool(jnp.isfinite(part).all()) for held in parts for part in held):
        raise CheckpointError(f"restored parameters are not finite: checkpoint {step} is damaged")
