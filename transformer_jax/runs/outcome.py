"""How a run ends, and what it says then."""

import shlex
import sys
from contextlib import suppress
from typing import NamedTuple

from transformer_jax.checkpoints.run_directory import RunDirectory, write_json
from transformer_jax.checkpoints.save_failure import SaveFailed, is_disk_full, problem_of
from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.runtime.program_name import program_name
from transformer_jax.tasks.registry import TASKS


class TrainingDiverged(RuntimeError):
    """A loss or gradient was not finite. The message names the update and the first tensor that was not."""


class Outcome(NamedTuple):
    """Outcome of a run. ``reason`` is ``finished``, ``patience``, ``stopped`` or ``interrupted``; ``best`` the best of the
    selection metric, which the log calls ``metric``; ``time_spent`` a line.
    """

    step: int
    reason: str
    best: float | None
    time_spent: str
    metric: str = ""


def summary(outcome: Outcome, run: RunDirectory, config: ExperimentConfig, seconds: float) -> str:
    """Summary of a run: its outcome, its folder, commands to try next."""
    selection = config.selection
    best = "" if outcome.best is None else f", best validation {selection.label} {selection.text(outcome.best)}"
    reason = {
        "finished": "finished",
        "patience": f"stopped: validation {selection.label} no longer improved",
        "stopped": "stopped after a validation, as asked",
        "interrupted": "interrupted, everything is saved: the same command resumes",
    }[outcome.reason]
    commands = (each.format(workdir=shlex.quote(str(run.path))) for each in TASKS[config.task].next_commands)
    if not _has_test_split(config):
        commands = (each.replace("--split=test", "--split=validation") for each in commands)
    lines = [
        f"{reason} at update {outcome.step}{best}, {seconds / 60:.1f} minutes; run directory {run.path}",
        f"  {outcome.time_spent}",
        f"  curves: {run.curves}",
        *(f"  {program_name()} {command}" for command in commands),
    ]
    return "\n".join(lines)


def _has_test_split(config: ExperimentConfig) -> bool:
    if config.data.source == "tfds":
        return True
    try:
        TASKS[config.task].require_split(config, "test")
    except DataError:
        return False
    return True


def end_by_failed_save(run: RunDirectory, error: SaveFailed | OSError) -> int:
    """Says in one line that nothing more can be saved, also in ``outcome.json`` if it can; raises any other error."""
    is_gone = not run.path.is_dir()
    if not (isinstance(error, SaveFailed) or is_disk_full(error) or is_gone):
        raise error
    problem = str(error) if isinstance(error, SaveFailed) else problem_of(run.checkpoints, error)
    print(problem, file=sys.stderr)
    if not is_gone:
        with suppress(OSError):
            steps = run.checkpoint_steps()
            write_json(run.outcome, {"step": steps[-1] if steps else 0, "reason": "failed", "problem": problem})
    return 1
