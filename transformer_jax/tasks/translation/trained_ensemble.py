"""Several trained models that translate together, each from its run directory."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transformer_jax.checkpoints.run_directory import ChosenRun, RunDirectory
from transformer_jax.config import ConfigError
from transformer_jax.data.sentence_pairs import digest
from transformer_jax.models.ensemble import joined_params
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.tasks.translation.ensemble_objective import EnsembleObjective
from transformer_jax.tasks.translation.trained_run import TrainedRun, open_trained_run


def open_chosen_runs(chosen: Sequence[ChosenRun], average: int = 1) -> list[TrainedRun]:
    """Restores each of them, or of each the mean of the last ``average`` checkpoints up to the one chosen.

    Raises ConfigError, before any parameters are read, unless all have the same tokenizers; else as ``open_trained_run`` does.
    """
    if len(chosen) > 1:
        _require_same_tokenizers(chosen)
    return [open_trained_run(each.workdir, each.config, checkpoint=each.checkpoint, average=average) for each in chosen]


def ensemble_of(runs: Sequence[TrainedRun]) -> TrainedRun:
    """One model that answers with the mean of the probabilities of all; in everything else the first of them."""
    if len(runs) == 1:
        return runs[0]
    objective = EnsembleObjective([run.objective for run in runs])  # type: ignore[misc]
    return replace(runs[0], objective=objective, params=joined_params([run.params for run in runs]))


def other_members(chosen: Sequence[ChosenRun], runs: Sequence[TrainedRun]) -> tuple[str, ...]:
    """What a report calls all but the first: ``("runs/b:2434", "runs/c:4000")``."""
    pairs = zip(chosen[1:], runs[1:], strict=True)
    return tuple(f"{each.workdir}:{run.steps[-1]}" for each, run in pairs)


def ensemble_ending(workdir: str | Path, others: Sequence[str]) -> str:
    """What the names of results in ``workdir`` end with: ``-ensemble+b-2434+c-4000``; nothing where there are no others.

    A run that does not lie beside ``workdir`` gets a digest of its path, ``+b~0f3a9c21-2434``: another may be called so too.
    """
    beside = Path(workdir).expanduser().resolve().parent
    members = [member.rpartition(":") for member in others]
    names = [f"+{_name(Path(folder).expanduser().resolve(), beside)}-{step}" for folder, _, step in members]
    return f"-ensemble{''.join(names)}" if names else ""


def _name(run: Path, beside: Path) -> str:
    return run.name if run.parent == beside else f"{run.name}~{digest([str(run)])[:8]}"


def _require_same_tokenizers(chosen: Sequence[ChosenRun]) -> None:
    first, *others = [tokenizers_of_run(RunDirectory(each.workdir)) for each in chosen]
    for run, tokenizers in zip(chosen[1:], others, strict=True):
        for side in ("source", "target"):
            if getattr(tokenizers, side).fingerprint() != getattr(first, side).fingerprint():
                raise ConfigError(
                    f"--ensemble: {run.workdir} has another {side} tokenizer than {chosen[0].workdir}, so their probabilities "
                    "are of different tokens; use runs with the same training text and the same tokenizer settings"
                )
