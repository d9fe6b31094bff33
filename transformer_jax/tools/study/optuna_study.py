"""The Optuna study of a sweep: its storage, its trials, and their attempts.

A worker asks Optuna for a trial. If a worker dies and its heartbeats stop, Optuna marks its trial
as failed, and the retry callback enqueues another. So a trial of the sweep has one or more
attempts, which are trials in Optuna with the same point and run directory.
"""

import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from transformer_jax.config import ConfigError, flatten
from transformer_jax.config.checks import declared
from transformer_jax.tools.study.sweeps import STORAGE_VARIABLE, Sweep, TrialRow, Value

Answer = TypeVar("Answer")

# Folders before the names of files. A setting may have several.
_FOLDERS = re.compile(r"[^,\s={}]*/")
UNREACHABLE = StorageInternalError, SQLAlchemyError
"""Errors of a database that does not respond."""

HEARTBEATS_PER_GRACE = 6
# Seconds between attempts to open a database. If several workers create its tables, one succeeds.
PAUSES = 0.5, 1.5, 0.0
# Seconds to wait for the write lock. No connection is kept.
SQLITE_OPTIONS = {"connect_args": {"timeout": 60.0}, "poolclass": NullPool}

# Seconds to wait for a database that does not respond.
WAIT_SECONDS = 600.0
# Seconds between attempts.
POLL_SECONDS = 1.0
# Gives running trials a first heartbeat. Optuna would wait forever for workers that died before it.
FIRST_HEARTBEATS = text(
    "INSERT INTO trial_heartbeats (trial_id, heartbeat) SELECT trial_id, CURRENT_TIMESTAMP FROM trials "
    "WHERE state = 'RUNNING' AND study_id = :study AND trial_id NOT IN (SELECT trial_id FROM trial_heartbeats)"
)

# A trial whose workers die this often in a row may be the cause.
MAX_RETRIES = 10
KILLED = "its workers died again and again; it may need more memory than the machine has"

# User attributes of the study and of its trials.
DEFINITION = "definition"
POINT = "point"
ERROR = "error"
SURPLUS = "surplus"

MAKE_SAMPLER: dict[str, Callable[[], BaseSampler]] = {
    # Not used, since a grid lists its points.
    "grid": RandomSampler,
    "random": RandomSampler,
    # Running trials count as poor, so that workers that sample at once choose different points.
    "tpe": lambda: TPESampler(constant_liar=True),
    "cma-es": CmaEsSampler,
}


def open_study(sweep: Sweep, workdir: Path, name: str, grace_seconds: float) -> optuna.Study:
    """Open or create the study ``name`` in the database of ``STORAGE_VARIABLE``, or in ``workdir``.

    A worker counts as dead after ``grace_seconds`` without a heartbeat. Raises ConfigError if the
    database cannot be opened, or the study belongs to another sweep.
    """
    optuna.logging.set_verbosity(logging.ERROR)
    # Heartbeats and retries are experimental.
    warnings.simplefilter("ignore", ExperimentalWarning)
    if sweep.sampler == "cma-es" and find_spec("cmaes") is None:
        raise ConfigError("sampler=cma-es", "needs pip install cmaes")
    url = os.environ.get(STORAGE_VARIABLE)
    if not url:
        url = f"sqlite:///{workdir / 'study.sqlite3'}"
        # SQLAlchemy and Optuna would read them as parts of a URL and of a template.
        if marks := sorted({*str(workdir)} & {*"?%{}"}):
            problem = f"{workdir} has {marks[0]!r}, and the file of a study cannot"
            raise ConfigError("--workdir", problem, "rename the folder")
    study = optuna.create_study(
        storage=_open_storage(sweep, url, grace_seconds),
        study_name=name,
        direction=sweep.measured.direction,
        sampler=MAKE_SAMPLER[sweep.sampler](),
        pruner=_make_pruner(sweep),
        load_if_exists=True,
    )
    _require_same(study, sweep)
    return study


class _Storage(RDBStorage):
    """A database that tolerates interruptions, and hands out only the trials of ``sweep``."""

    def __init__(self, sweep: Sweep, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._sweep = sweep

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        # Optuna tries the waiting trials one by one. False means that another worker has the trial.
        if state == TrialState.RUNNING and not is_of(self._sweep, self.get_trial(trial_id)):
            return False
        return super().set_trial_state_values(trial_id, state, values)

    def record_heartbeat(self, trial_id: int) -> None:
        # The next heartbeat may succeed.
        with suppress(*UNREACHABLE):
            super().record_heartbeat(trial_id)

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        # Another worker may insert the same row at the same time.
        with suppress(IntegrityError), self.engine.begin() as connection:
            connection.execute(FIRST_HEARTBEATS, {"study": study_id})
        return super()._get_stale_trial_ids(study_id)


def _open_storage(sweep: Sweep, url: str, grace_seconds: float) -> RDBStorage:
    is_sqlite = url.startswith("sqlite")
    for pause in PAUSES:
        try:
            storage = _Storage(
                sweep,
                url,
                engine_kwargs=SQLITE_OPTIONS if is_sqlite else {"pool_pre_ping": True},
                heartbeat_interval=max(1, round(grace_seconds / HEARTBEATS_PER_GRACE)),
                grace_period=max(1, round(grace_seconds)),
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(MAX_RETRIES, True),
            )
            break
        except ImportError as error:
            driver = getattr(error.__cause__, "name", None) or "the driver of this database"
            raise ConfigError(STORAGE_VARIABLE, f"needs a Python package: pip install {driver}") from None
        # Drivers have different errors, and Optuna wraps some of them.
        except Exception as error:
            problem = first_line(error)
            time.sleep(pause)
    else:
        raise ConfigError(
            STORAGE_VARIABLE,
            f"the database cannot be opened ({problem})",
            "give postgresql+psycopg://USER:PASSWORD@HOST/NAME, mysql+pymysql://... or sqlite:////FILE",
        )
    if is_sqlite:
        # SQLite has no row locks, so two workers could claim one trial. Transactions begin with the
        # write lock.
        event.listen(storage.engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(storage.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return storage


def answered(ask: Callable[[], Answer]) -> Answer:
    """Return the result of ``ask``, a query. Retries for ten minutes without a response."""
    end, is_first = time.monotonic() + WAIT_SECONDS, True
    while True:
        try:
            return ask()
        except UNREACHABLE as error:
            problem = f"the study cannot be reached: {first_line(error)}"
        if time.monotonic() >= end:
            raise ConfigError(problem, remedy="the same command resumes")
        if is_first:
            print(f"{problem}; trying again for {WAIT_SECONDS:.0f} s", file=sys.stderr)
        is_first = False
        time.sleep(POLL_SECONDS)


def first_line(error: BaseException) -> str:
    """Return class and first line of an error, or of the database error that Optuna wrapped."""
    if isinstance(error, StorageInternalError):
        error = error.__cause__ or error
    return f"{type(error).__name__}: {error}".strip().split("\n")[0][:200]


def _make_pruner(sweep: Sweep) -> BasePruner:
    training = sweep.settings(sweep.points()[0]).training
    match sweep.pruner:
        case "median":
            return MedianPruner(n_startup_trials=4)
        case "successive_halving":
            return SuccessiveHalvingPruner(min_resource=training.evaluate_every)
        case "hyperband":
            return HyperbandPruner(min_resource=training.evaluate_every, max_resource=training.num_updates)
    return NopPruner()


def _require_same(study: optuna.Study, sweep: Sweep) -> None:
    """Raise ConfigError if the study belongs to another sweep. Rows and trials may be added."""
    now = {"metric": sweep.metric_key, "sampler": sweep.sampler, "pruner": sweep.pruner}
    now |= {f"space, {name}": repr(values) for name, values in sweep.space.items() if not sweep.is_grid}
    now |= {f"row {name}": str(dict(row)) for name, row in sweep.rows.items()}
    try:
        settings = flatten(sweep.settings({}))
    except ConfigError:
        # The settings are valid only with a row or a point.
        settings = dict(sweep.overrides)
    # Machines have different folders of the data and the cache.
    data = declared(type(sweep.settings(sweep.points()[0]).data)).items()
    paths = {f"data.{name}" for name, field in data if field.facts.get("changeable") and not name.endswith("_split")}
    now |= {f"setting {key}": str(value) for key, value in settings.items() if key not in paths}
    files = {key: str(settings[key]) for key in paths & settings.keys() if not key.endswith("directory")}
    now |= {f"file name in {key}": _FOLDERS.sub("", value) for key, value in files.items()}
    before = study.user_attrs.get(DEFINITION, {})
    for key in now:
        if before.get(key, now[key]) != now[key]:
            raise ConfigError(
                "--workdir",
                f"the study {study.study_name!r} was started with {key} = {before[key]}, not {now[key]}",
                "use a --workdir of another name",
            )
    study.set_user_attr(DEFINITION, before | now)


def retry(study: optuna.Study, trial: FrozenTrial) -> None:
    """Enqueue another attempt at a trial, and count the deaths of its workers from 0."""
    trial = copy(trial)
    trial.system_attrs = {name: value for name, value in trial.system_attrs.items() if name != "retry_history"}
    RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)(study, trial)


def retry_failed(study: optuna.Study, sweep: Sweep) -> None:
    for attempts in trials_of(study):
        if attempts[-1].state == TrialState.FAIL and is_of(sweep, attempts[-1]):
            trial = copy(attempts[-1])
            trial.user_attrs = {name: value for name, value in trial.user_attrs.items() if name != ERROR}
            retry(study, trial)


def is_of(sweep: Sweep, trial: FrozenTrial) -> bool:
    """Return whether the trial has a point of ``sweep``, or none yet.

    Commands with other ``--rows`` train other points.
    """
    return not sweep.is_grid or trial.user_attrs.get(POINT) in (None, *sweep.points())


def trials_of(study: optuna.Study) -> list[list[FrozenTrial]]:
    """Return lists of attempts, by trial. Trials are numbered by their first attempt."""
    attempts: dict[int, list[FrozenTrial]] = {}
    for trial in study.get_trials(deepcopy=False):
        if SURPLUS not in trial.user_attrs:
            first = RetryHeartbeatStaleTrialCallback.retried_trial_number(trial)
            attempts.setdefault(trial.number if first is None else first, []).append(trial)
    return list(attempts.values())


def points_of(sweep: Sweep, trials: Sequence[Sequence[FrozenTrial]]) -> list[dict[str, Value] | None]:
    """Return the points of trials, the same in every worker.

    Optuna numbers trials consecutively, and a trial without a recorded point gets the first point
    that no trial before it has, or None beyond the last. The point is empty if a sampler has yet to
    choose it.
    """
    recorded = [
        next((attempt.user_attrs[POINT] for attempt in attempts if POINT in attempt.user_attrs), None)
        for attempts in trials
    ]
    if sweep.is_grid:
        free = [point for point in sweep.points() if point not in recorded]
    else:
        free = sweep.points()[len(recorded) - recorded.count(None) :]
    return [(free.pop(0) if free else None) if point is None else point for point in recorded]


def has_free_point(sweep: Sweep, trials: Sequence[Sequence[FrozenTrial]]) -> bool:
    """Return whether a trial of the sweep has yet to begin."""
    points = points_of(sweep, trials)
    return any(point not in points for point in sweep.points()) if sweep.is_grid else len(trials) < sweep.trials


def trial_rows(study: optuna.Study, sweep: Sweep) -> list[TrialRow]:
    """Return the trials that have a point, by number."""
    trials = trials_of(study)
    rows = []
    for number, (attempts, point) in enumerate(zip(trials, points_of(sweep, trials), strict=True)):
        if point is None:
            continue
        last = attempts[-1]
        remarks: Mapping[str, Any] = last.user_attrs
        values = last.intermediate_values
        step = sweep.measured.best_step(values) if values else None
        value = None if step is None else values[step]
        if "found" in remarks:
            step, value = remarks["step"], remarks["found"][sweep.metric_key]
        rows.append(
            TrialRow(
                number=number,
                state="failed" if last.state == TrialState.FAIL else last.state.name.lower(),
                value=value,
                step=step,
                point=point or last.params,
                minutes=remarks.get("minutes"),
                folder=remarks.get("folder", ""),
                error=remarks.get(ERROR, KILLED) if last.state == TrialState.FAIL else "",
                metrics=remarks.get("found", {}),
            )
        )
    return rows
