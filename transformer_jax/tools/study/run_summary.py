"""Run directories named on the command line, and the results and cost of each, read without loading its model."""

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
    """A run; an unknown value is None.

    ``metrics``, by name, are from the best validation by the selection metric, after
    ``best_update`` (the latest of equals). ``best_checkpoint`` is the best checkpoint still on
    disk. The scores of ``damaged`` checkpoints cannot be read. ``target_tokens`` of all
    ``updates``, after the last line that counts them at its mean. ``signs``: evidence that the
    model does not learn. ``target_tokens_per_second`` is the median of the logged values,
    ``seconds`` the total in ``goodput.json``. ``is_finished``: it made all its updates. ``basis``:
    of its validations, as of an ``Evaluation``. ``evaluations``: saved reports by file.
    ``problems``: files that are damaged, missing, or of fewer updates than the others, a sentence
    each; what they hold is unknown.
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
        """Return the score of the best checkpoint on a split, decoded with the settings of the run."""
        file = f"evaluation-{split.replace('/', '-')}-{self.best_step}.json"
        return self.evaluations[file]["metrics"].get(metric) if file in self.evaluations else None


def summarize(folder: Path, name: str) -> RunSummary:
    """Read a run directory; the name of an averaged or imported run gets the suffix "(parameters only)".

    Raises ConfigError if its settings cannot be read.
    """
    run = RunDirectory(folder)
    run.require_run("RUN")
    problems = list[str]()
    records = _sound_records(run, problems)
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
    problems += [f"{each.folder}: damaged: its score cannot be read" for each in stored if not each.is_sound]
    outcome = _read(problems, lambda: read_checked(run.outcome)) or {}
    if is_count(outcome.get("step")):
        updates = max(updates or 0, outcome["step"])
    signs = outcome.get("signs")
    if not isinstance(signs, list):
        signs = _read(problems, lambda: signs_of(run, config)) or []
    parameters = _read(problems, lambda: _parameters(run)) if stored or records else None
    spent = _read(problems, lambda: read_goodput(run.goodput))
    if spent is None and records and not is_model_alone and not any("goodput.json" in each for each in problems):
        problems.append(f"{run.goodput}: no such file; the time spent is not known")
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
    """Validation metrics by update, ``{500: {"validation/bleu": 21.3, ...}}``; the later of two records counts."""
    found: dict[int, dict[str, float]] = {}
    for record in read_metrics(metrics):
        values = {key: value for key, value in record.items() if key.startswith("validation/") and value is not None}
        if values:
            found[int(record["step"])] = values
    return found


def _read(problems: list[str], read: Callable[[], Value]) -> Value | None:
    """Return the value, or None and another of the ``problems`` where its file is damaged."""
    try:
        return read()
    except StoreError:
        raise
    except DataError as error:
        problems.append(str(error))
        return None


def _sound_records(run: RunDirectory, problems: list[str]) -> list[dict[str, Any]]:
    """Return the sound records of the log; adds a sentence where lines are damaged, missing or changed since a checkpoint."""
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
        problem = "no number of parameters" if starts else "no such file; the number of parameters is not known"
        raise DataError(f"{run.run_record}: {problem}")
    return int(starts[-1]["parameters"])


def find_runs(arguments: Sequence[str]) -> list[Path]:
    """Return the run directories that the arguments name, as they name them, without repetitions, in order.

    An argument is a run directory, or a folder that contains run directories, such as the
    ``trials`` of a sweep, which are listed in natural order (``trial-2`` before ``trial-10``).
    Raises ConfigError for an argument that is neither.
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
    """Return the run directory ``path``, or the run directory of a file ``path``; raises ConfigError if there is none."""
    run = path if path.is_dir() else path.parent
    if not path.exists() or not _is_run(run):
        problem = f"no config.json in {run}" if path.exists() else "does not exist"
        raise ConfigError(path, problem, "give a run directory, or a file that evaluate wrote into one")
    return run


def _is_run(folder: Path) -> bool:
    return RunDirectory(folder).config.is_file()
