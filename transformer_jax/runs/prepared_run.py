"""A run that can begin: its newest checkpoint is restored, and nothing is written yet."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax

from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.save_failure import require_room
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.runs.callbacks import Callback
from transformer_jax.runs.initial_state import InitialState
from transformer_jax.runs.metrics_log import LogContents
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.hardware import require_memory
from transformer_jax.tasks.protocol import Task
from transformer_jax.training.counters import Counters
from transformer_jax.training.state import TrainState
from transformer_jax.training.update import Update

ShouldStop = Callable[[int, Mapping[str, float]], bool]
"""Called after every validation with the update and the metrics by their names in the log; True ends the run there."""


@dataclass
class PreparedRun:
    """A run that can begin: its newest checkpoint is restored, and nothing is written yet.

    ``logged`` was there when its checkpoint was saved; ``is_validation_due`` when a signal cut the validation after it short.
    ``origin``: where its settings come from, for ``run.json``.
    ``restored`` holds the restored state until it is taken, so that memory never holds it twice; empty for a new run.
    """

    config: ExperimentConfig
    directory: RunDirectory
    task: Task
    update: Update
    checkpoints: Checkpoints
    restored: list[TrainState]
    counters: Counters
    first_update: int
    initial: InitialState
    notes: list[str]
    should_stop: ShouldStop | None = None
    logged: LogContents = field(default_factory=LogContents)
    is_validation_due: bool = False
    callback: Callback = Callback()  # noqa: RUF009  # it has no state
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_updates(self) -> int:
        """The update at which the run ends: as configured, or sooner where its budget of time asked for that."""
        return self.counters.num_updates or self.config.training.num_updates


@contextmanager
def prepare_run(
    config: ExperimentConfig,
    directory: RunDirectory,
    task: Task,
    update: Update,
    should_stop: ShouldStop | None = None,
    callback: Callback = Callback(),  # noqa: B008
) -> Iterator[PreparedRun]:
    """Restores the newest checkpoint, if there is one; waits for the last one to be written at the end.

    Raises ConfigError when the data changed since, or the state does not fit into memory; CheckpointError when no checkpoint
    can be read.
    """
    training = config.training
    devices = update.mesh.local_devices
    shards = (
        (leaf.sharding.shard_shape(leaf.shape), leaf.dtype.itemsize) for leaf in jax.tree.leaves(update.state_shapes)
    )
    require_memory(len(devices) * sum(math.prod(shape) * size for shape, size in shards), devices)
    checkpoints = Checkpoints(
        directory.checkpoints, keep_last=training.keep_last, keep_best=training.keep_best, selection=config.selection
    )
    with closing(checkpoints):
        is_new = not checkpoints.steps()
        initial = InitialState(config, update, task.tokenizers, is_resumed=not is_new)
        run = PreparedRun(config, directory, task, update, checkpoints, [], Counters(), 0, initial, [], should_stop)
        run.callback = callback
        if not is_new:
            state, progress, complaints = checkpoints.restore_newest(update.state_shapes)
            run.notes += complaints
            _require_same_data(directory, task, progress["data"])
            run.restored, run.counters = [state], Counters.from_json(progress["counters"])
            run.first_update = int(state.step)
            run.logged = LogContents(progress.get("num_records", 0), progress.get("log_digest", ""))
            run.is_validation_due = progress.get("is_validation_due", False)
            # This frame lives as long as the run, and would keep a second copy.
            del state
        if reason_to_end_of(run, run.first_update) is None:
            run.notes += require_room(directory.path, update.state_shapes, training.keep_last + training.keep_best)
        yield run


def reason_to_end_of(run: PreparedRun, number: int) -> str | None:
    """``finished`` or ``patience``, where its counters say so and no validation is due."""
    if run.is_validation_due:
        return None
    training = run.config.training
    if number >= run.num_updates:
        return "finished"
    return "patience" if training.patience and run.counters.evaluations_without_gain >= training.patience else None


def _require_same_data(directory: RunDirectory, task: Task, saved: Mapping[str, str]) -> None:
    for name, digest in task.identity.items():
        if saved[name] != digest:
            raise ConfigError(
                f"--workdir: {directory.path}: the {name} changed since its checkpoints were written; use another folder, or "
                "the data they were trained on"
            )
