"""Results and cost of run directories, read without loading the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from transformer_jax.config import ConfigError, DataError, ExperimentConfig, load_run_config
from transformer_jax.config.tasks import TASKS
from transformer_jax.errors import StoreError, natural_order
from transformer_jax.files.checked_json import read_checked
from transformer_jax.files.json_text import is_count
from transformer_jax.files.paths import as_path
from transformer_jax.run_directory.layout import RunDirectory, read_starts
from transformer_jax.run_directory.selection import basis_of_validations, best_step
from transformer_jax.run_directory.stored_checkpoints import stored_checkpoints, written_progress
from transformer_jax.runs.goodput import read_goodput
from transformer_jax.runs.learning_signs import signs_of
from transformer_jax.runs.metrics_log import LogContents, read_metrics, sound_metrics
from transformer_jax.tasks.saved_evaluations import saved_reports

Value = TypeVar("Value")


@dataclass(frozen=True)
class RunSummary:
    """A run. An unknown value is None.

    Args:
        metrics: by name, from the best validation by the selection metric.
        best_update: the update of this validation, the latest of equals.
        target_tokens: of all ``updates``, extrapolated after the last line that counts them.
        target_tokens_per_second: the median of the logged values.
        seconds: the total in ``goodput.json``.
        best_checkpoint: the best checkpoint that is still on disk.
        problems: a sentence for every file that is damaged, missing, or behind the others.
        is_finished: whether it reached its last update.
        signs: evidence that the model does not learn.
        basis: the examples of its validations, as of an ``Evaluation``.
        evaluations: saved reports by file.
    """

    name: str
    folder: Path
    config: ExperimentConfig
    metrics: Mapping[str, float | None]
    best_update: int | None
    updates: int | None
    target_tokens: int | None
    parameters: int | None
    target_tokens_per_second: float | None
    seconds: float | None
    best_checkpoint: Path | None
    problems: tuple[str, ...]
    is_finished: bool
    signs: tuple[str, ...]
    basis: str
    evaluations: Mapping[str, Mapping[str, Any]]

    @property
    def score(self) -> float | None:
        return self.metrics.get(self.config.selection.name)

    @property
    def best_step(self) -> int | None:
        return None if self.best_checkpoint is None else int(self.best_checkpoint.name)

    def score_of_best(self, split: str, metric: str) -> float | None:
        """Return the score of the best checkpoint on a split, with the run's decoding."""
        file = f"evaluation-{split.replace('/', '-')}-{self.best_step}.json"
        return self.evaluations[file]["metrics"].get(metric) if file in self.evaluations else None


def summarize(folder: Path, name: str) -> RunSummary:
    """Read a run directory. The suffix "(parameters only)" marks an averaged or imported run."""
    run = RunDirectory(folder)
    run.require_run("RUN")
    problems = list[str]()
    records = _sound_records(run, problems)
    config = load_run_config(folder)
    best: dict[str, Any] = {}
    key, speed = config.selection.key, "speed/target_tokens_per_second"
    scored = {record["step"]: record for record in records if record.get(key) is not None}
    if scored:
        best = scored[config.selection.best_step({step: record[key] for step, record in scored.items()})]
    stored = stored_checkpoints(run.checkpoints)
    step = best_step(stored, config.selection)
    # An averaged or imported run has one checkpoint, without scores.
    is_model_alone = bool(stored) and not stored[-1].can_be_continued
    step = stored[-1].step if step is None and is_model_alone else step
    updates = max((record["step"] for record in records), default=None)
    counted = [record for record in records if record.get("train/target_tokens") is not None and record["step"]]
    speeds = [record[speed] for record in records if record.get(speed) is not None]
    problems += [
        f"{checkpoint.folder}: damaged: its score cannot be read" for checkpoint in stored if not checkpoint.is_sound
    ]
    outcome = _read(problems, lambda: read_checked(run.outcome)) or {}
    if is_count(outcome.get("step")):
        updates = max(updates or 0, outcome["step"])
    signs = outcome.get("signs")
    if not isinstance(signs, list):
        signs = _read(problems, lambda: signs_of(run, config)) or []
    parameters = _read(problems, lambda: _parameters(run)) if stored or records else None
    spent = _read(problems, lambda: read_goodput(run.goodput))
    if spent is None and records and not is_model_alone and not any("goodput.json" in problem for problem in problems):
        problems.append(f"{run.goodput}: no such file, so the time is unknown")
    evaluations, damaged = saved_reports(folder)
    return RunSummary(
        name=f"{name} (parameters only)" if is_model_alone else name,
        folder=folder,
        config=config,
        metrics={metric.name: best.get(metric.key) for metric in TASKS[config.task].metrics},
        best_update=best.get("step"),
        updates=updates,
        target_tokens=round(counted[-1]["train/target_tokens"] * updates / counted[-1]["step"]) if counted else None,
        parameters=parameters,
        target_tokens_per_second=median(speeds) if speeds else None,
        # The file may have begun after the updates.
        seconds=sum(spent["seconds"].values()) if spent and spent["seconds"]["step"] else None,
        best_checkpoint=None if step is None else run.checkpoints / str(step),
        problems=tuple(dict.fromkeys([*problems, *damaged])),
        is_finished=outcome.get("reason") == "finished",
        signs=tuple(map(str, signs)),
        basis=basis_of_validations(run),
        evaluations=evaluations,
    )


def validations(metrics: Path) -> dict[int, dict[str, float]]:
    """Return validation metrics by update: ``{500: {"validation/bleu": 21.3, ...}}``."""
    by_update: dict[int, dict[str, float]] = {}
    for record in read_metrics(metrics):
        values = {key: value for key, value in record.items() if key.startswith("validation/") and value is not None}
        if values:
            by_update[int(record["step"])] = values
    return by_update


def _read(problems: list[str], read: Callable[[], Value]) -> Value | None:
    """Return the value, or None if its file is damaged, which adds to ``problems``."""
    try:
        return read()
    except StoreError:
        raise
    except DataError as error:
        problems.append(str(error))
        return None


def _sound_records(run: RunDirectory, problems: list[str]) -> list[dict[str, Any]]:
    """Return the sound records of the log. Damaged and changed lines add to ``problems``."""
    log = sound_metrics(run.metrics)
    problems += log.problems
    _, progress = next(written_progress(run.checkpoints), (0, {}))
    saved = LogContents(progress.get("num_records", 0), progress.get("log_digest", ""))
    if not log.problems:
        now = LogContents.of(log.records[: saved.num_records])
        problems += [f"{run.metrics.parent}/{change}" for change in now.changes_since(saved)]
    return log.records


def _parameters(run: RunDirectory) -> int:
    """Return the number of parameters recorded at the last start."""
    starts = read_starts(run.run_record)
    if not starts or not is_count(starts[-1].get("parameters")):
        problem = "no number of parameters" if starts else "no such file, so the number of parameters is unknown"
        raise DataError(f"{run.run_record}: {problem}")
    return int(starts[-1]["parameters"])


def find_runs(arguments: Sequence[str]) -> list[Path]:
    """Return the run directories of arguments, without repetitions.

    An argument is a run directory, or a folder that contains run directories, such as the
    ``trials`` of a sweep, in natural order (``trial-2`` before ``trial-10``).
    """
    by_address: dict[Path, Path] = {}
    for argument in arguments:
        folder = as_path(argument)
        if not argument.strip() or not folder.is_dir():
            raise ConfigError(f"{argument!r} is not a folder", remedy="give a run, or a folder of runs")
        is_one = _is_run(folder)
        runs = (
            [folder] if is_one else sorted(filter(_is_run, folder.iterdir()), key=lambda run: natural_order(run.name))
        )
        if not runs:
            listing = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
            raise ConfigError(folder, f"no config.json in it or one level below (there is {listing})")
        for run in runs:
            by_address.setdefault(run.resolve(), run)
    return list(by_address.values())


def run_of(path: Path) -> Path:
    """Return the run directory ``path``, or the one of the file ``path``."""
    run = path if path.is_dir() else path.parent
    if not path.exists() or not _is_run(run):
        problem = f"no config.json in {run}" if path.exists() else "does not exist"
        raise ConfigError(path, problem, "give a run directory, or a file that evaluate wrote into one")
    return run


def _is_run(folder: Path) -> bool:
    return RunDirectory(folder).config.is_file()
