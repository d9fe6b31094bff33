"""Ensembles of trained models, each from its run directory."""

from collections.abc import Sequence
from dataclasses import replace

from transformer_jax.config import ConfigError
from transformer_jax.models.ensemble import joined_params
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.tasks.translation.ensemble_objective import EnsembleObjective
from transformer_jax.tasks.translation.trained_run import TrainedRun, open_trained_run


def open_ensemble(chosen: Sequence[ChosenRun], average: int = 1) -> TrainedRun:
    """The run, or an ensemble that averages the probabilities of several; everything else is that of the first run.

    Restores of each the checkpoint chosen, or the mean of the last ``average`` up to it.

    Raises ConfigError, before any parameters are read, unless all have the same tokenizers; else as ``open_trained_run`` does.
    """
    if len(chosen) > 1:
        _require_same_tokenizers(chosen)
    runs = [open_trained_run(each.workdir, each.config, checkpoint=each.checkpoint, average=average) for each in chosen]
    if len(runs) == 1:
        return runs[0]
    objective = EnsembleObjective([run.objective for run in runs])  # type: ignore[misc]
    others = zip(chosen[1:], runs[1:], strict=True)
    members = tuple(f"{each.workdir}:{run.steps[-1]}" for each, run in others)
    return replace(runs[0], objective=objective, params=joined_params([run.params for run in runs]), members=members)


def _require_same_tokenizers(chosen: Sequence[ChosenRun]) -> None:
    first, *others = [tokenizers_of_run(RunDirectory(each.workdir)) for each in chosen]
    for run, tokenizers in zip(chosen[1:], others, strict=True):
        for side in ("source", "target"):
            if getattr(tokenizers, side).fingerprint() != getattr(first, side).fingerprint():
                raise ConfigError(
                    f"--ensemble: {run.workdir} has another {side} tokenizer than {chosen[0].workdir}, so their probabilities "
                    "are of different tokens; use runs with the same training text and the same tokenizer settings"
                )
