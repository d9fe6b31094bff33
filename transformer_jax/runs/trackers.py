"""Trackers: where the metrics of a run go besides ``metrics.jsonl``. The library of each is imported when it is used."""

import importlib
import importlib.util
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from transformer_jax.config import ConfigError, DataError, ExperimentConfig, flatten
from transformer_jax.config.json_text import parse_json
from transformer_jax.config.plugins import registered
from transformer_jax.runtime.atomic_files import write_whole

PROJECT = "transformer_jax"
IDS_FILE = "trackers.json"


@runtime_checkable
class Tracker(Protocol):
    """Receives what the log of a run receives."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Records ``metrics`` measured after ``step`` updates."""

    def sync(self) -> None:
        """Called at every checkpoint: what was written should last."""

    def close(self) -> None:
        """Nothing is written after this."""


class TensorBoard:
    """Events in the folder of the run; events of a killed run beyond ``first_update`` are purged.

    Written in this thread: an error in the thread of ``SummaryWriter``, as on a full disk, is a traceback that stops nothing.
    """

    def __init__(self, folder: Path, config: ExperimentConfig | None, first_update: int) -> None:
        # Where PyTorch is installed, this imports it.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        self._event, self._scalar, self._events = Event, scalar, EventsWriter(str(folder / "events"))
        start = SessionLog(status=SessionLog.START)
        self._events.write_event(Event(wall_time=time.time(), step=first_update + 1, session_log=start))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds scalars."""
        now = time.time()
        for name, value in metrics.items():
            self._events.write_event(self._event(wall_time=now, step=step, summary=self._scalar(name, value)))
        self._events.flush()

    def sync(self) -> None:
        """Flushes."""
        self._events.flush()

    def close(self) -> None:
        """Closes the file."""
        self._events.close()


class WeightsAndBiases:
    """A run of Weights & Biases; ``WANDB_MODE=offline`` keeps it in the folder, for ``wandb sync``."""

    def __init__(self, folder: Path, config: ExperimentConfig, first_update: int) -> None:
        wandb = _imported("wandb", "wandb")
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
        """Logs at ``step``; a resumed run does not repeat steps that were logged."""
        self._run.log(dict(metrics), step=step)

    def sync(self) -> None:
        """Done by a thread of the library."""

    def close(self) -> None:
        """Ends the run of this process; a resumed one continues it."""
        self._run.finish()


class Mlflow:
    """A run of MLflow, at ``MLFLOW_TRACKING_URI`` or in ``mlruns.db`` beside the folder."""

    def __init__(self, folder: Path, config: ExperimentConfig, first_update: int) -> None:
        mlflow = _imported("mlflow", "mlflow")
        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute().parent / 'mlruns.db'}"
        self._client = mlflow.MlflowClient(where)
        self._id = run_id(folder, "mlflow", lambda: self._new(folder, config))
        self._client.update_run(self._id, status="RUNNING")

    def _new(self, folder: Path, config: ExperimentConfig) -> str:
        name = group_of(folder) or os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        made: str = self._client.create_run(number, run_name=folder.name).info.run_id
        for key, value in flatten(config).items():
            self._client.log_param(made, key, str(value)[:500])
        return made

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs at ``step``."""
        for name, value in metrics.items():
            self._client.log_metric(self._id, name, value, step=step)

    def sync(self) -> None:
        """Each metric was sent when it was logged."""

    def close(self) -> None:
        """Ends the run; a resumed one continues it."""
        self._client.set_terminated(self._id)


class Trackio:
    """A run of Trackio, in its local database."""

    def __init__(self, folder: Path, config: ExperimentConfig, first_update: int) -> None:
        self._trackio = _imported("trackio", "trackio")
        name = run_id(folder, "trackio", lambda: f"{folder.name}-{uuid.uuid4().hex[:6]}")
        self._trackio.init(project=group_of(folder) or PROJECT, name=name, config=flatten(config), resume="allow")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs at ``step``."""
        self._trackio.log(dict(metrics), step=step)

    def sync(self) -> None:
        """Each record was written when it was logged."""

    def close(self) -> None:
        """Ends the run of this process."""
        self._trackio.finish()


TRACKERS: dict[str, Callable[[Path, ExperimentConfig, int], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": Mlflow,
    "trackio": Trackio,
}


LIBRARIES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow", "trackio": "trackio"}


def require_libraries(config: ExperimentConfig) -> None:
    """Raises ConfigError, before anything is imported, when the library of a tracker of ``config`` is not installed."""
    for name in config.training.tracker_names:
        library = LIBRARIES.get(name, "")
        if library and importlib.util.find_spec(library) is None:
            raise ConfigError(f"training.trackers: {library} is not installed; pip install {library}")


class Trackers:
    """The trackers of ``training.trackers`` as one, without ``jsonl``, which is the log itself. Only process 0 has any."""

    def __init__(self, folder: Path, config: ExperimentConfig, first_update: int) -> None:
        makers = {**TRACKERS, **registered("tracker")}
        # Imported here because it imports JAX, which the checks of settings do without.
        from transformer_jax.runtime.distributed import is_first

        names = [name for name in config.training.tracker_names if name != "jsonl"] if is_first() else []
        self.trackers = [makers[name](folder, config, first_update) for name in names]

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Records ``metrics`` in each."""
        for tracker in self.trackers:
            tracker.write(step, metrics)

    def sync(self) -> None:
        """Called at every checkpoint."""
        for tracker in self.trackers:
            tracker.sync()

    def close(self) -> None:
        """Closes all; one that cannot be closed, as on a full disk, does not keep another open."""
        with ExitStack() as stack:
            for tracker in self.trackers:
                stack.callback(tracker.close)


def run_id(folder: Path, tracker: str, new: Callable[[], str]) -> str:
    """The name that ``tracker`` knows this run by, kept in its folder: a resumed run continues the same one."""
    file = folder / IDS_FILE
    try:
        ids = parse_json(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError:
        ids = None
    if not isinstance(ids, dict) or not all(isinstance(each, str) for each in ids.values()):
        raise DataError(f"{file}: not the names of a run by tracker; move it away to resume")
    if tracker not in ids:
        ids[tracker] = new()
        write_whole(file, json.dumps(ids, indent=2) + "\n")
    return str(ids[tracker])


def group_of(folder: Path) -> str | None:
    """Name of the sweep that ``folder`` is a trial of, below ``trials``; else None."""
    return folder.absolute().parents[1].name if folder.absolute().parent.name == "trials" else None


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigError(f"training.trackers: {module} is not installed; pip install {package}") from None
