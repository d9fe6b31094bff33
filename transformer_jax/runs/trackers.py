"""Experiment trackers, which receive metrics besides ``metrics.jsonl``."""

import importlib
import importlib.util
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, runtime_checkable

from transformer_jax.config import ConfigError, DataError, ExperimentConfig, flatten
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.json_text import parse_json
from transformer_jax.registry.index import own_parts
from transformer_jax.registry.plugins import register, registered
from transformer_jax.run_directory.layout import IDS_FILE

PROJECT = "transformer_jax"


@runtime_checkable
class Tracker(Protocol):
    """Receives every record of ``metrics.jsonl``. After an error ``fail()``, if any, closes it."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record ``metrics`` measured after ``step`` updates."""

    def sync(self) -> None:
        """Make the records so far durable. Called at every checkpoint."""

    def close(self) -> None:
        """Release the resources of the tracker. Called once, at the end."""


@register("tracker", "tensorboard")
class TensorBoard(Tracker):
    """Events in the folder of the run. TensorBoard ignores earlier events beyond ``first_update``.

    Written in this thread: in the thread of ``SummaryWriter`` an error would not stop the run.
    """

    def __init__(self, folder: Path, config: ExperimentConfig, first_update: int) -> None:
        # Where PyTorch is installed, this imports it.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        self._event, self._scalar, self._events = Event, scalar, EventsWriter(str(folder / "events"))
        start = SessionLog(status=SessionLog.START)
        self._events.write_event(Event(wall_time=time.time(), step=first_update + 1, session_log=start))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        now = time.time()
        for name, value in metrics.items():
            self._events.write_event(self._event(wall_time=now, step=step, summary=self._scalar(name, value)))
        self._events.flush()

    def close(self) -> None:
        self._events.close()


@register("tracker", "wandb")
class WeightsAndBiases(Tracker):
    """A run of Weights & Biases, in the folder of the run with ``WANDB_MODE=offline``."""

    def __init__(self, folder: Path, config: ExperimentConfig, first_update: int) -> None:
        wandb = importlib.import_module("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run_id(folder, "wandb", lambda: uuid.uuid4().hex[:12]),
            resume="allow",
            name=folder.name,
            group=group_of(folder),
            config=flatten(config),
            dir=str(folder),
        )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()

    def fail(self) -> None:
        self._run.finish(exit_code=1)


def require_libraries(config: ExperimentConfig) -> None:
    """Raise ConfigError when the library of a tracker of ``config`` is not installed."""
    for name in dict.fromkeys(config.training.tracker_names):
        library = "tensorboardX" if name == "tensorboard" else name
        if ("tracker", name) in own_parts() and importlib.util.find_spec(library) is None:
            raise ConfigError("training.trackers", f"{library} is not installed", f"pip install {library}")


class Trackers:
    """The trackers of ``training.trackers`` except ``jsonl``, the log itself, on process 0."""

    def __init__(self, folder: Path, config: ExperimentConfig, first_update: int) -> None:
        # Imported here because it imports JAX, which the checks of settings do without.
        from transformer_jax.runtime.distributed import is_first

        require_libraries(config)
        names = [name for name in dict.fromkeys(config.training.tracker_names) if name != "jsonl"] if is_first() else []
        self.trackers = [registered("tracker")[name](folder, config, first_update) for name in names]

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            tracker.write(step, metrics)

    def sync(self) -> None:
        for tracker in self.trackers:
            tracker.sync()

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close all trackers, even if closing one fails."""
        with ExitStack() as stack:
            for tracker in self.trackers:
                is_failed = isinstance(error, Exception)
                stack.callback(getattr(tracker, "fail", tracker.close) if is_failed else tracker.close)


def run_id(folder: Path, tracker: str, new: Callable[[], str]) -> str:
    """Return the stored name of this run in ``tracker``, or store one from ``new``."""
    file = folder / IDS_FILE
    try:
        ids = parse_json(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError:
        ids = None
    if not isinstance(ids, dict) or not all(isinstance(name, str) for name in ids.values()):
        raise DataError(f"{file}: not a JSON object with the name of the run in each tracker; move it away to resume")
    if tracker not in ids:
        ids[tracker] = new()
        write_whole(file, json.dumps(ids, indent=2) + "\n")
    return ids[tracker]


def group_of(folder: Path) -> str | None:
    """Return the name of the sweep of a trial, SWEEP/trials/TRIAL, or None for other folders."""
    return folder.absolute().parents[1].name if folder.absolute().parent.name == "trials" else None
