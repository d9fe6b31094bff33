"""Selection of a checkpoint: ``best`` (by its score on the validation split), ``last`` or a number. Does not import Orbax."""

from transformer_jax.config import ExperimentConfig, Metric, load_run_config
from transformer_jax.errors import complain
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.stored_checkpoints import (
    CheckpointError,
    StoredCheckpoint,
    is_step,
    stored_checkpoints,
    written_progress,
)


def selection_of(run: RunDirectory) -> Metric:
    """Return the metric that selects the checkpoints of a run; the default task's where ``config.json`` is missing."""
    return (load_run_config(run.config) if run.config.is_file() else ExperimentConfig()).selection


def basis_of_validations(run: RunDirectory) -> str:
    """Return ``96 of 1,014 sentences, greedy``, of the newest checkpoint; empty before a validation and in earlier versions."""
    _, progress = next(written_progress(run.checkpoints), (0, {}))
    return str(progress.get("counters", {}).get("basis", ""))


def best_step(stored: list[StoredCheckpoint], selection: Metric) -> int | None:
    """Return the step with the best score, the newest of equal ones; None when none was scored."""
    scores = {each.step: each.score for each in stored if each.score is not None}
    return selection.best_step(scores) if scores else None


def chosen_step(run: RunDirectory, which: str, *, tells: bool = True) -> int:
    """Return the step of ``best``, ``last`` or a number; where no checkpoint was scored, ``best`` is the last.

    Says, if it ``tells``, where a damaged score may have been better than ``best``. Raises
    CheckpointError when there is no such checkpoint.
    """
    stored = stored_checkpoints(run.checkpoints)
    steps = [each.step for each in stored]
    if not steps:
        raise CheckpointError(f"{run.checkpoints}: no checkpoint yet")
    best = best_step(stored, selection_of(run))
    named = {"best": steps[-1] if best is None else best, "last": steps[-1]}
    if which in named:
        for each in stored if tells and which == "best" else ():
            if not each.is_sound:
                problem = f"its score cannot be read; best of the others is {named['best']:,}"
                complain(f"transformer-jax: {each.folder}: damaged: {problem}")
        return named[which]
    if is_step(which) and int(which) in steps:
        return int(which)
    kept = f"{', '.join(map(str, steps))} (best {named['best']}, last {named['last']})"
    raise CheckpointError(f"{run.checkpoints}: no checkpoint {which!r}; kept are {kept}")


def steps_to_average(run: RunDirectory, which: str, count: int) -> list[int]:
    """Return the ``count`` newest steps up to ``which``, oldest first; of several, never the untrained step 0.

    Raises CheckpointError when there are fewer.
    """
    newest = chosen_step(run, which)
    if count == 1:
        return [newest]
    trained = [step for step in run.checkpoint_steps() if 0 < step <= newest]
    if len(trained) < count:
        raise CheckpointError(
            f"{run.checkpoints}: {count} checkpoints to average, but up to {newest} there are {trained}"
        )
    return trained[-count:]
