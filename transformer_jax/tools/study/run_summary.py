"""Run directories named on the command line, and the results and cost of each, read without loading its model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from transformer_jax.config import ConfigError, DataError, ExperimentConfig, load_run_config
from transformer_jax.config.tasks import TASKS
from transformer_jax.errors import StoreError, natural_order
from transformer_jax.files.json_text import finite_or_none, is_count, parse_json
from transformer_jax.files.paths import as_path
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.selection import basis_of_validations, best_step
from transformer_jax.run_directory.stored_checkpoints import stored_checkpoints
from transformer_jax.runs.learning_signs import signs_of
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.tasks.saved_evaluations import saved_reports

Value = TypeVar("Value")


@dataclass(frozen=True)
class RunSummary:
    """A run; an unknown value is None.

    ``metrics``, by name, are from the best validation by the selection metric, after ``best_update`` (the latest of equals).
    ``best_checkpoint`` is the best checkpoint still on disk. The scores of ``damaged`` checkpoints cannot be read.
    ``target_tokens`` of all ``updates``, after the last line that counts them at its mean. ``signs``: evidence that the model
    does not learn. ``target_tokens_per_second`` is the median of the logged values, ``seconds`` the total in ``goodput.json``.
    ``is_finished``: it made all its updates. ``basis``: of its validations, as of an ``Evaluation``. ``evaluations``: saved
    reports by file.
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
    damaged: tuple[Path, ...]
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
        """The score of the best checkpoint on a split, decoded with the settings of the run."""
        file = f"evaluation-{split.replace('/', '-')}-{self.best_step}.json"
        return self.evaluations[file]["metrics"].get(metric) if file in self.evaluations else None


def summarize(folder: Path, name: str) -> RunSummary:
    """Reads a run directory; the name of an averaged or imported run gets the suffix "(parameters only)".

    Raises ConfigError if its settings cannot be read, DataError if another of its files is damaged.
    """
    run = RunDirectory(folder)
    run.require_run("RUN")
    records = read_metrics(run.metrics)
    config = load_run_config(folder)
    best: dict[str, Any] = {}
    scored = {each["step"]: each for each in records if each.get(config.selection.key) is not None}
    if scored:
        best = scored[config.selection.best_step({step: each[config.selection.key] for step, each in scored.items()})]
    stored = stored_checkpoints(run.checkpoints)
    step = best_step(stored, config.selection)
    # An averaged or imported run has one checkpoint, without scores.
    is_model_alone = bool(stored) and not stored[-1].can_be_continued
    step = stored[-1].step if step is None and is_model_alone else step
    updates = max((record["step"] for record in records), default=None)
    counted = [each for each in records if each.get("train/target_tokens") is not None and each["step"]]
    speed = "speed/target_tokens_per_second"
    speeds = [each[speed] for each in records if each.get(speed) is not None]
    outcome = _read(run.outcome, dict) or {}
    signs = outcome.get("signs")
    return RunSummary(
        name=f"{name} (parameters only)" if is_model_alone else name,
        folder=folder,
        config=config,
        metrics={metric.name: best.get(metric.key) for metric in TASKS[config.task].metrics},
        best_update=best.get("step"),
        updates=updates,
        target_tokens=round(counted[-1]["train/target_tokens"] * updates / counted[-1]["step"]) if counted else None,
        parameters=_read(run.run_record, _parameters),
        target_tokens_per_second=median(speeds) if speeds else None,
        seconds=_read(run.goodput, _seconds),
        best_checkpoint=None if step is None else run.checkpoints / str(step),
        damaged=tuple(each.folder for each in stored if not each.is_sound),
        is_finished=outcome.get("reason") == "finished",
        signs=tuple(map(str, signs if isinstance(signs, list) else signs_of(run, config))),
        basis=basis_of_validations(run),
        evaluations={file.name: report for file, report in saved_reports(folder)},
    )


def validations(metrics: Path) -> dict[int, dict[str, float]]:
    """Validation metrics by update, ``{500: {"validation/bleu": 21.3, ...}}``; the later of two records counts."""
    found: dict[int, dict[str, float]] = {}
    for record in read_metrics(metrics):
        values = {key: value for key, value in record.items() if key.startswith("validation/") and value is not None}
        if values:
            found[int(record["step"])] = values
    return found


def _read(file: Path, read: Callable[[Any], Value | None]) -> Value | None:
    """``read`` of the content of a JSON file, None without the file; raises DataError if that is not what a run writes."""
    if not file.is_file():
        return None
    try:
        return read(parse_json(file.read_text(encoding="utf-8")))
    except StoreError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: damaged, not a file that a run writes: {error}") from None


def _parameters(starts: Any) -> int | None:
    """The number of parameters recorded at the last start."""
    if not isinstance(starts, list):
        raise TypeError("not a list of starts")
    count = starts[-1]["parameters"] if starts else None
    if starts and not is_count(count):
        raise ValueError(f"parameters: {count!r}")
    return count


def _seconds(sheet: Any) -> float | None:
    """Total seconds; None if ``goodput.json`` was begun after the updates."""
    seconds = {kind: finite_or_none(value) or 0.0 for kind, value in sheet["seconds"].items()}
    return float(sum(seconds.values())) if seconds["step"] else None


def find_runs(arguments: Sequence[str]) -> list[Path]:
    """The run directories that the arguments name, as they name them, without repetitions, in order.

    An argument is a run directory, or a folder that contains run directories, such as the ``trials`` of a sweep, which are
    listed in natural order (``trial-2`` before ``trial-10``). Raises ConfigError for an argument that is neither.
    """
    found: dict[Path, Path] = {}
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
            raise ConfigError(folder, f"no config.json in it or one level below (found {listing})")
        for run in runs:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def run_of(path: Path) -> Path:
    """The run directory ``path``, or the run directory of a file ``path``; raises ConfigError if there is none."""
    run = path if path.is_dir() else path.parent
    if not path.exists() or not _is_run(run):
        problem = f"no config.json in {run}" if path.exists() else "does not exist"
        raise ConfigError(path, problem, "give a run directory, or a file that evaluate wrote into one")
    return run


def _is_run(folder: Path) -> bool:
    return RunDirectory(folder).config.is_file()
