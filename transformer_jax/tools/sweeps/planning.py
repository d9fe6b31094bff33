"""Enqueues the trials of a sweep, by the first worker that starts, and more of them when the sweep has grown."""

import json
import time
from typing import Any

import optuna

from transformer_jax.config import ConfigError, flatten
from transformer_jax.tools.sweeps.definition import Sweep
from transformer_jax.tools.sweeps.ranges import Value

DEFINITION, PLANNED, NUMBER = "definition", "planned", "number"
SECONDS_TO_PLAN = 60.0
ALTERS_NOTHING = {"decoding.batch_tokens"}


def await_plan(study: optuna.Study) -> None:
    """Waits while another worker enqueues the trials; returns if it makes no progress, since it may have died."""
    count, deadline = -1, 0.0
    while PLANNED not in study.user_attrs:
        now, found = time.monotonic(), len(study.get_trials(deepcopy=False))
        count, deadline = (count, deadline) if found == count else (found, now + SECONDS_TO_PLAN)
        if now > deadline:
            return
        time.sleep(0.1)


def plan(study: optuna.Study, sweep: Sweep) -> None:
    """Enqueues the trials of the sweep that the study does not have: by point, or up to their number.

    Each gets its number, so that a trial which two workers enqueue at the same time is one trial.
    """
    there = {
        trial.user_attrs[NUMBER]: trial.system_attrs.get("fixed_params", {})
        for trial in study.get_trials(deepcopy=False)
        if NUMBER in trial.user_attrs
    }
    points = sweep.points()
    known = [_key(point) for point in there.values()]
    missing = [point for point in points if _key(point) not in known] if sweep.is_listed else points[len(there) :]
    if PLANNED in study.user_attrs and not missing:
        return
    study.set_user_attr(DEFINITION, definition(sweep))
    for number, point in enumerate(missing, start=max(there, default=-1) + 1):
        study.enqueue_trial(point, user_attrs={NUMBER: number})
    study.set_user_attr(PLANNED, len(there) + len(missing))


def require_same(study: optuna.Study, sweep: Sweep) -> None:
    """Raises ConfigError when the study is of another sweep; more rows, seeds or trials are allowed."""
    if DEFINITION not in study.user_attrs:
        return
    before, now = json.loads(study.user_attrs[DEFINITION]), json.loads(definition(sweep))
    for key in now:
        # Rows may come and go; what one of them means may not change.
        ours, theirs = now[key], before.get(key)
        if key == "rows":
            ours, theirs = ({name: row[name] for name in ours if name in theirs} for row in (ours, theirs))
        if key == "settings":
            # Another version may have more of them, and another default of what alters no result.
            same = (ours.keys() & theirs.keys()) - ALTERS_NOTHING
            ours, theirs = ({name: each[name] for name in same} for each in (ours, theirs))
        if ours != theirs:
            name = _changed(theirs, ours)
            raise ConfigError(
                f"--sweep: the study {study.study_name!r} was begun with other {key}{name}; use another --workdir, or with "
                "--storage another --study, for another sweep"
            )


def definition(sweep: Sweep) -> str:
    """JSON of what identifies the sweep of a study, including the settings of its recipe."""
    return json.dumps(
        {
            "settings": _settings(sweep),
            "rows": {name: dict(row) for name, row in sweep.rows.items()},
            "space": {name: repr(each) for name, each in sweep.space.items()},
            "metric": sweep.metric,
            "sampler": sweep.sampler,
            "pruner": sweep.pruner,
        },
        ensure_ascii=False,
    )


def _settings(sweep: Sweep) -> dict[str, Any]:
    """Base settings of all trials, without the location of the data, which each machine chooses."""
    try:
        stated = flatten(sweep.settings({}))
    except ConfigError:
        # Possible only with what rows or ranges add.
        stated = dict(sweep.overrides)
    return {key: value for key, value in stated.items() if not key.endswith("directory")}


def _changed(before: Any, now: Any) -> str:
    """The first entry that differs, for a message."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return f": {before!r}, and now it is {now!r}"
    key = next(key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key))
    return f", {key}: {before.get(key)!r}, and now it is {now.get(key)!r}"


def _key(point: dict[str, Value]) -> str:
    return json.dumps(point, sort_keys=True)
