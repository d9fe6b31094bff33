"""Selection of a checkpoint: ``best`` on the validation split, ``last`` or a number."""

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
    """Return the metric that selects the checkpoints of a run, by default the default task's."""
    return (load_run_config(run.config) if run.config.is_file() else ExperimentConfig()).selection


def basis_of_validations(run: RunDirectory) -> str:
    """Return ``96 of 1,014 sentences, greedy``, of the newest checkpoint, or "" if it has none."""
    _, progress = next(written_progress(run.checkpoints), (0, {}))
    return str(progress.get("counters", {}).get("basis", ""))


def best_step(stored: list[StoredCheckpoint], selection: Metric) -> int | None:
    """Return the step with the best score, in a tie the newest, or None if none was scored."""
    scores = {checkpoint.step: checkpoint.score for checkpoint in stored if checkpoint.score is not None}
    return selection.best_step(scores) if scores else None


def chosen_step(run: RunDirectory, which: str, *, tells: bool = True) -> int:
    """Return the step of ``best``, ``last`` or a number. If none was scored, ``best`` is the last.

    ``tells``: say when a damaged score may have been better than ``best``. Raises CheckpointError
    when there is no such checkpoint.
    """
    stored = stored_checkpoints(run.checkpoints)
    steps = [checkpoint.step for checkpoint in stored]
    if not steps:
        raise CheckpointError(f"{run.checkpoints}: no checkpoint yet")
    best = best_step(stored, selection_of(run))
    by_word = {"best": steps[-1] if best is None else best, "last": steps[-1]}
    if which in by_word:
        for checkpoint in stored if tells and which == "best" else ():
            if not checkpoint.is_sound:
                problem = f"its score cannot be read; best of the others is {by_word['best']:,}"
                complain(f"transformer-jax: {checkpoint.folder}: damaged: {problem}")
        return by_word[which]
    if is_step(which) and int(which) in steps:
        return int(which)
    kept = f"{', '.join(map(str, steps))} (best {by_word['best']}, last {by_word['last']})"
    raise CheckpointError(f"{run.checkpoints}: no checkpoint {which!r}; kept are {kept}")


def steps_to_average(run: RunDirectory, which: str, count: int) -> list[int]:
    """Return the ``count`` newest steps up to ``which``, oldest first.

    Of several none is the untrained step 0. Raises CheckpointError if there are fewer.
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
