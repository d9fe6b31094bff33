"""The learning curves of several runs in one plot."""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.config import ConfigError
from transformer_jax.config.tasks import TASKS
from transformer_jax.data.sentence_pairs import did_you_mean
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tools.pictures.curves import draw_curves
from transformer_jax.tools.reports.document import Picture
from transformer_jax.tools.reports.run_summary import RunSummary

PANELS_SIDE_BY_SIDE = 2


def draw_run_curves(runs: Sequence[RunSummary], chosen: Sequence[str], path: Path) -> Picture | None:
    """Draws the metrics ``chosen``, or those of the tasks of the runs and the training loss, each run that has any.

    None, and no picture, where there is nothing yet. Raises ConfigError when no run has one that was chosen.
    """
    metrics = list(dict.fromkeys(name.strip() for name in chosen)) or _default_curves(runs)
    found = {run.name: _names(RunDirectory(run.folder).metrics) for run in runs}
    known = sorted(set().union(*found.values()))
    unknown = [metric for metric in metrics if metric not in known]
    if chosen and unknown:
        hint = did_you_mean(unknown[0], known) or f"; there are {', '.join(known) or 'none yet'}"
        raise ConfigError(f"--metrics: no run has measured {unknown[0]!r}{hint}")
    keys = [metric for metric in metrics if metric in known]
    drawn = [run for run in runs if found[run.name] & set(keys)]
    if not drawn:
        return None
    files = [RunDirectory(run.folder).metrics for run in drawn]
    draw_curves(files, keys, path, names=[run.name for run in drawn], columns=PANELS_SIDE_BY_SIDE)
    hidden = " ".join(hidden_curves(drawn, keys))
    words = f"{', '.join(keys)} of {', '.join(run.name for run in drawn)} against the updates. {hidden}".strip()
    return Picture(path.name, path.read_bytes(), words, caption=hidden)


def hidden_curves(runs: Sequence[RunSummary], keys: Sequence[str]) -> list[str]:
    """A sentence for each run whose curves are those of an earlier one, over which they are drawn."""
    seen: dict[tuple[object, ...], str] = {}
    hidden = []
    for run in runs:
        records = read_metrics(RunDirectory(run.folder).metrics)
        measured = tuple((each["step"], *(each.get(key) for key in keys)) for each in records)
        curves = tuple(each for each in measured if any(value is not None for value in each[1:]))
        other = seen.setdefault(curves, run.name) if curves else run.name
        hidden += [f"{run.name} has the curves of {other} and hides them."] if other != run.name else []
    return hidden


def _default_curves(runs: Sequence[RunSummary]) -> list[str]:
    """The metrics of the tasks, without the loss, which the perplexity repeats, and the training loss."""
    of_tasks = [[metric.key for metric in TASKS[run.config.task].metrics if metric.name != "loss"] for run in runs]
    return [*dict.fromkeys(key for keys in of_tasks for key in keys), "train/loss"]


def _names(file: Path) -> set[str]:
    """Names of the metrics that have at least one value."""
    return {name for record in read_metrics(file) for name, value in record.items() if value is not None}
