"""How a run ends, and what it says then."""

import shlex
import sys
from typing import NamedTuple

from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.config.plugins import plugin_flags
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.object_store import with_addresses
from transformer_jax.runtime.startup import program_name
from transformer_jax.tasks.registry import TASKS


class TrainingDiverged(RuntimeError):
    """A loss or gradient was not finite. The message names the update and the first tensor that was not."""


class Outcome(NamedTuple):
    """Outcome of a run. ``reason`` is ``finished``, ``patience``, ``stopped`` or ``interrupted``; ``best`` the best of the
    selection metric, which the log calls ``metric``; ``time_spent`` a line; ``signal`` is the number of
    the signal that interrupted it; ``signs``: signs that the model does not learn.
    """

    step: int
    reason: str
    best: float | None
    time_spent: str
    metric: str = ""
    signal: int = 0
    signs: tuple[str, ...] = ()


def summary(outcome: Outcome, run: RunDirectory, config: ExperimentConfig, seconds: float) -> str:
    """Summary of a run: its outcome, its folder, commands to try next."""
    if outcome.reason == "interrupted":
        when = f"interrupted at update {outcome.step} after {seconds / 60:.1f} minutes, everything is saved"
        return f"{when}; resume with:\n  {program_name()} {shlex.join(sys.argv[1:])}"
    selection = config.selection
    best = "" if outcome.best is None else f", best validation {selection.label} {selection.text(outcome.best)}"
    reason = {
        "finished": "finished",
        "patience": f"stopped: validation {selection.label} no longer improved",
        "stopped": "stopped after a validation, as asked",
    }[outcome.reason]
    workdir = f"{shlex.quote(str(run.path))}{plugin_flags()}"
    commands = (each.format(workdir=workdir) for each in TASKS[config.task].next_commands)
    if not _has_test_split(config):
        commands = (each.replace("--split=test", "--split=validation") for each in commands)
    lines = [
        f"{reason} at update {outcome.step}{best}, {seconds / 60:.1f} minutes; run directory {run.path}",
        *(f"  WARNING: {sign}" for sign in outcome.signs),
        f"  {outcome.time_spent}",
        f"  curves: {run.curves}",
        *(f"  {program_name()} {command}" for command in commands),
    ]
    return with_addresses("\n".join(lines))


def _has_test_split(config: ExperimentConfig) -> bool:
    if config.data.source == "tfds":
        return True
    try:
        TASKS[config.task].require_split(config, "test")
    except DataError:
        return False
    return True
