"""Local checkpoints: between two checkpoints of a run, each process saves its shards on a disk or in the memory of its host.

Orbax writes them, for each process alone: none waits for another. Its own emergency checkpoints
(``orbax.checkpoint.experimental.emergency``) hold one item, without the progress of the run, and need two replicas.
"""

import asyncio
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax
import orbax.checkpoint as ocp

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.disk import DigestedFolder, DiskFolder
from transformer_jax.checkpoints.format import CheckpointError, CheckpointUnread, is_step, step_names
from transformer_jax.checkpoints.manager import Checkpoints, Progress, alone
from transformer_jax.config.errors import complain, first_line
from transformer_jax.config.json_text import parse_json
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.atomic_files import require_writable
from transformer_jax.runtime.distributed import all_agree, from_all, from_first, is_first, is_of_another
from transformer_jax.runtime.file_digests import changed_files
from transformer_jax.runtime.object_store import SCRATCH, scratch_folder
from transformer_jax.runtime.open_copies import upload_logs
from transformer_jax.training.state import TrainState

# Processes may be one save apart.
KEPT = 2
IsLogged = Callable[[int, Progress], bool]
"""Whether the log of the run has, up to a step, the records that it had when this progress was saved; for process 0."""


class LoggedFolder(DigestedFolder):
    """A local checkpoint, which gets its name once the logs of a run in a store are uploaded."""

    async def finalize(self) -> None:
        if is_step(self.get_final().name):
            await asyncio.to_thread(upload_logs)
        await super().finalize()


class LocalCheckpoints:
    """The newest local checkpoints of one process, in a folder of its host. With ``every=0`` there are none.

    All processes make the same calls. Each checkpoint names its run, the start that wrote it, the number of processes and the
    shards of this one.
    """

    def __init__(self, run: RunDirectory, every: int) -> None:
        self._run, self._is_on, self._folder = run, every > 0, Path()
        self._restored, self._run_id, self._start = -1, "", ""
        self._manager: Any = None
        if self._is_on:
            self._start = from_first(lambda: uuid4().hex, "local checkpoints")
            address = sha256(str(run.path.absolute()).encode()).hexdigest()[:16]
            folder = scratch_folder() / f"local-{address}" / str(jax.process_index())
            self._folder = require_writable(folder, f"training.local_checkpoint_every: {SCRATCH}")

    def close(self) -> None:
        """Waits for writing to finish."""
        if self._manager:
            self._attempt(self._manager.close)
            self._manager = None

    def remove(self) -> None:
        """Closes and removes the checkpoints, when the run is over."""
        self.close()
        if self._is_on:
            shutil.rmtree(self._folder, ignore_errors=True)
            # Another process of this host may have a folder there.
            with suppress(OSError):
                self._folder.parent.rmdir()

    def save(self, state: TrainState, progress: Progress) -> None:
        """Starts writing the shards of this process. Prints why that, or the save before, failed: the run continues."""
        if not self._manager:
            self._open()
        origin = {"run": self._run_id, "start": self._start, "processes": jax.process_count(), "layout": _layout(state)}
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave(state._asdict()), progress=ocp.args.JsonSave(progress | {"local": origin})
        )
        # Both in any case: all processes must save equally often, since Orbax numbers the saves of all its managers.
        self._attempt(self._manager.wait_until_finished)
        self._attempt(partial(self._manager.save, int(state.step), args=items, force=True))

    def restore_newest(
        self, checkpoints: Checkpoints, like: TrainState, is_logged: IsLogged
    ) -> tuple[TrainState, Progress, list[str]]:
        """The newest state that all processes can read, here or in the run directory, and sentences about others.

        Raises CheckpointError when there is none, or one is undamaged but cannot be read now.
        """
        newest, notes = checkpoints.steps()[-1], list[str]()
        if found := self._restore_between(newest, sys.maxsize, like, is_logged, notes):
            return *found, notes
        try:
            state, progress, damaged = checkpoints.restore_newest(like)
        except CheckpointUnread:
            raise
        except CheckpointError:
            if found := self._restore_between(-1, newest, like, is_logged, notes):
                return *found, notes
            raise
        notes += damaged
        if int(state.step) < newest and (
            found := self._restore_between(int(state.step), newest, like, is_logged, notes)
        ):
            return *found, notes
        return state, progress, notes

    def _restore_between(
        self, step: int, last: int, like: TrainState, is_logged: IsLogged, notes: list[str]
    ) -> tuple[TrainState, Progress] | None:
        """The newest usable state after ``step``, up to ``last``."""
        if not self._is_on:
            return None
        run = from_first(self._run.first_start, "run.json")
        newer = [name for name in step_names(self._folder) if step < int(name) <= last]
        here = {name: self._usable(name, run, like, is_logged) for name in newer}
        of_all = from_all(f"local checkpoints {self._start} {step}", here)
        refused: dict[str, list[str]] = {}
        restored = None
        for name in sorted({name for each in of_all for name in each}, key=int, reverse=True):
            found = [each.get(name, ["", "not on all hosts"]) for each in of_all]
            differ = "not from the same start of the run" if len({start for start, _ in found}) > 1 else ""
            if not (problem := next((text for _, text in found if text), differ)):
                try:
                    restored = self._restore(name, like)
                except CheckpointError as error:
                    problem = str(error)
                if all_agree(not problem, "local checkpoint"):
                    self._restored = int(name)
                    break
                restored = None
            refused.setdefault(problem or "damaged on another host", []).append(name)
        notes += [f"local checkpoint {', '.join(names)} not used: {problem}" for problem, names in refused.items()]
        notes += [f"restored local checkpoint {self._restored} in {self._folder}"] if restored else []
        return restored

    def _usable(self, name: str, run: str, like: TrainState, is_logged: IsLogged) -> tuple[str, str]:
        """The start that wrote a checkpoint; why it cannot be used, empty if it can. Does not look at arrays."""
        try:
            progress = self._progress(name, ["progress"])
            origin = progress["local"]
            start, processes = origin["start"], origin["processes"]
            checks = {
                "of another run": origin["run"] == run,
                f"written by {processes} processes": processes == jax.process_count(),
                "written with another mesh or model": origin["layout"] == _layout(like),
                "metrics.jsonl has other records": not is_first() or is_logged(int(name), progress),
            }
        except (OSError, ValueError, KeyError, TypeError):
            return "", "damaged"
        return start, next((problem for problem, is_met in checks.items() if not is_met), "")

    def _progress(self, name: str, checked: list[str] | None = None) -> Progress:
        """Raises ValueError where one of these items changed since it was written, by default any."""
        if changed := changed_files(self._folder / name, checked):
            raise ValueError(f"{changed[0]} changed since it was written")
        return parse_json((self._folder / name / "progress" / "metadata").read_bytes())

    def _restore(self, name: str, like: TrainState) -> tuple[TrainState, Progress]:
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)._asdict()
        try:
            progress = self._progress(name)
            handler = ocp.StandardCheckpointHandler()
            restored = handler.restore(self._folder / name / "state", args=ocp.args.StandardRestore(abstract))
        # A damaged file can raise anything.
        except Exception as error:
            raise CheckpointError(f"damaged: {first_line(error)}") from error
        return TrainState(**restored), progress

    def _open(self) -> None:
        """Removes what this start did not restore, and opens the folder."""
        self._run_id = from_first(self._run.first_start, "run.json")
        for name in step_names(self._folder):
            if int(name) != self._restored:
                shutil.rmtree(self._folder / name, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        DiskFolder(self._folder).remove_unfinished()
        handlers, options = ocp.DefaultCheckpointHandlerRegistry(), alone()
        # As in Orbax's emergency checkpoints: each process writes its shards, a replicated one too, and their description.
        arrays = ocp.type_handlers.ArrayHandler(primary_host=None, replica_id=None, use_replica_parallel=False)
        types = ocp.type_handlers.create_type_handler_registry((jax.Array, arrays))
        shards = ocp.PyTreeCheckpointHandler(multiprocessing_options=options, type_handler_registry=types)
        handlers.add("state", ocp.args.PyTreeSave, shards)
        handlers.add("progress", ocp.args.JsonSave, ocp.JsonCheckpointHandler(multiprocessing_options=options))
        settings = ocp.CheckpointManagerOptions(
            max_to_keep=KEPT,
            create=False,
            temporary_path_class=LoggedFolder,
            multiprocessing_options=options,
            # Signals of created folders have the same names in all processes.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        )
        self._manager = ocp.CheckpointManager(self._folder, options=settings, handler_registry=handlers)

    def _attempt(self, call: Callable[[], object]) -> None:
        try:
            call()
        # Orbax, tensorstore, the store and the system have different errors.
        except Exception as error:
            if is_of_another(error):
                raise
            complain(f"{self._folder}: no local checkpoint ({first_line(error)}); the run continues")
            DiskFolder(self._folder).remove_unfinished()
            # After a failed write Orbax does not delete the checkpoint that the new one replaces, and forgets it.
            for name in set(step_names(self._folder)) - {str(step) for step in self._manager.all_steps()}:
                shutil.rmtree(self._folder / name, ignore_errors=True)


def _layout(state: PyTree) -> str:
    """A digest of the shards of this process."""
    shards = [
        (jax.tree_util.keystr(path), leaf.shape, str(leaf.dtype), sorted(map(str, indices.values())))
        for path, leaf in jax.tree.leaves_with_path(state)
        for indices in [leaf.sharding.addressable_devices_indices_map(leaf.shape)]
    ]
    return sha256(repr(shards).encode()).hexdigest()[:16]
