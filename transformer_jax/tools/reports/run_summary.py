"""Results and cost of one run, read from its folder; nothing is loaded, and the run may still be in progress."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from transformer_jax.checkpoints.format import stored_checkpoints
from transformer_jax.checkpoints.selection import best_step, scored_checkpoints, watched_validations
from transformer_jax.config import DataError, ExperimentConfig, Metric, load_run_config
from transformer_jax.config.json_text import finite_or_none, is_count, parse_json
from transformer_jax.config.tasks import TASKS
from transformer_jax.runs.learning_signs import signs_of
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tasks.saved_evaluations import saved_reports, signature_of, whose_parameters


@dataclass(frozen=True)
class SavedScores:
    """A saved evaluation: of which split and ``parameters``, decoded otherwise (``file``), and its metrics by name.

    ``signature`` is that of BLEU, where there is one.
    """

    file: str
    split: str
    parameters: str
    metrics: Mapping[str, float | None]
    signature: str = ""


@dataclass(frozen=True)
class RunSummary:
    """A run. What is not known (yet) is None.

    ``metrics``, by name, are those of the best validation by the selection metric, after ``best_update``, of equals the later;
    where the run made none, of those of ``evaluate --watch``. ``best_checkpoint`` is the folder of the best checkpoint that is
    kept, ``damaged`` are those whose score cannot be read; ``signs`` say that the model does not learn.
    ``tokens_per_second`` is the median of the logged values; ``seconds`` all time that ``goodput.json`` accounts for.
    """

    name: str
    folder: Path
    config: ExperimentConfig
    metrics: Mapping[str, float | None]
    best_update: int | None
    updates: int | None
    target_tokens: int | None
    parameters: int | None
    tokens_per_second: float | None
    seconds: float | None
    best_checkpoint: Path | None
    damaged: tuple[Path, ...]
    signs: tuple[str, ...]
    evaluations: tuple[SavedScores, ...]

    @property
    def score(self) -> float | None:
        """The value of the selection metric."""
        return self.metrics.get(self.config.selection.name)

    @property
    def best_step(self) -> int | None:
        """The update of the best checkpoint."""
        return None if self.best_checkpoint is None else int(self.best_checkpoint.name)

    def scores_of_best(self, split: str) -> SavedScores | None:
        """The evaluation of the best checkpoint on a split as the run's own settings decode: not averaged, nothing changed."""
        file = f"evaluation-{split.replace('/', '-')}-{self.best_step}.json"
        return next((saved for saved in self.evaluations if saved.file == file), None)


def summarize(folder: Path, name: str) -> RunSummary:
    """Reads a run directory; one that holds averaged parameters is called so.

    Raises ConfigError when its settings cannot be read, DataError when another of its files is damaged.
    """
    run = RunDirectory(folder)
    run.require_run("RUN")
    records = read_metrics(run.metrics)
    config = load_run_config(folder)
    selection = config.selection
    best = _best_validation(records, selection) or _best_validation(watched_validations(run), selection)
    stored, kept = scored_checkpoints(run), stored_checkpoints(run.checkpoints)
    step = best_step(stored, selection)
    tokens = _last(records, "train/target_tokens")
    speeds = _values(records, "speed/target_tokens_per_second")
    return RunSummary(
        name=f"{name} (averaged)" if kept and not kept[-1].can_be_continued else name,
        folder=folder,
        config=config,
        metrics={metric.name: best.get(metric.key) for metric in TASKS[config.task].metrics},
        best_update=best.get("step"),
        updates=max((record["step"] for record in records), default=None),
        target_tokens=None if tokens is None else int(tokens),
        parameters=_parameters(folder),
        tokens_per_second=median(speeds) if speeds else None,
        seconds=_seconds(run.goodput),
        best_checkpoint=None if step is None else run.checkpoints / str(step),
        signs=_signs(run, config),
        damaged=tuple(each.folder for each in stored if not each.is_sound),
        evaluations=tuple(
            SavedScores(
                file=file.name,
                split=report["split"],
                parameters=whose_parameters(report),
                metrics=report["metrics"],
                signature=signature_of(report),
            )
            for file, report in saved_reports(folder)
        ),
    )


def _signs(run: RunDirectory, config: ExperimentConfig) -> tuple[str, ...]:
    """As the run said at its end; before that, as its log says now."""
    outcome = _json(run.outcome)
    said = outcome.get("signs") if isinstance(outcome, dict) else None
    return tuple(map(str, said)) if isinstance(said, list) else tuple(signs_of(run, config))


def _best_validation(records: Sequence[dict[str, Any]], selection: Metric) -> dict[str, Any]:
    """The record that is best by the selection metric, an empty one where there is none."""
    scored = {record["step"]: record for record in records if record.get(selection.key) is not None}
    values = {step: record[selection.key] for step, record in scored.items()}
    return scored[selection.best_step(values)] if values else {}


def _values(records: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [record[key] for record in records if record.get(key) is not None]


def _last(records: Sequence[dict[str, Any]], key: str) -> float | None:
    return next(reversed(_values(records, key)), None)


def _parameters(folder: Path) -> int | None:
    """Of the newest start; raises DataError where ``run.json`` is not a list of starts."""
    file = folder / "run.json"
    starts = _json(file)
    if starts is None or starts == []:
        return None
    count = starts[-1].get("parameters") if isinstance(starts, list) and isinstance(starts[-1], dict) else None
    if not isinstance(count, int) or not is_count(count):
        raise DataError(f"{file}: not the list of starts that a run keeps")
    return count


def _seconds(file: Path) -> float | None:
    """None where ``goodput.json`` was begun after the updates; raises DataError where it is not what a run keeps."""
    sheet = _json(file)
    if sheet is None:
        return None
    try:
        seconds = {kind: finite_or_none(value) or 0.0 for kind, value in sheet["seconds"].items()}
        return float(sum(seconds.values())) if seconds["step"] else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{file}: not the goodput.json of a run") from None


def _json(file: Path) -> Any:
    """The content of a file that need not be there."""
    if not file.is_file():
        return None
    try:
        return parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file}: not JSON: {error}") from None
