"""What a sweep found, to read: the trials in order, and where seeds were varied the mean over them."""

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.files import write_whole
from transformer_jax.sweeps.definition import SEED, Sweep
from transformer_jax.sweeps.overview import TrialRow, ranked
from transformer_jax.sweeps.ranges import Value

Table = list[list[str]]
"""The head, then the rows."""


def write_leaderboard(sweep: Sweep, trials: Sequence[TrialRow], folder: Path) -> list[Path]:
    """Writes leaderboard.csv, every trial with all it found, and leaderboard.md, the same to read; their paths."""
    markdown, table = folder / "leaderboard.md", folder / "leaderboard.csv"
    write_whole(table, _csv(trial_table(sweep, trials)))
    write_whole(markdown, f"{summary(sweep, trials)}\n")
    return [markdown, table]


def summary(sweep: Sweep, trials: Sequence[TrialRow]) -> str:
    """Markdown: how many trials ended how, their table, and that of the means over seeds."""
    counts = {state: sum(trial.state == state for trial in trials) for state in dict.fromkeys(t.state for t in trials)}
    head = f"{len(trials)} trials of `{sweep.config}`: {', '.join(f'{n} {state}' for state, n in counts.items())}."
    better = "the more the better" if sweep.direction == "maximize" else "the less the better"
    parts = [f"{head} Ordered by {sweep.metric}, {better}, the best of each trial's validations."]
    parts.append(markdown_table(trial_table(sweep, trials)))
    if len(sweep.seeds) > 1:
        parts += ["Over seeds:", markdown_table(seed_table(sweep, trials))]
    return "\n\n".join(parts)


def trial_table(sweep: Sweep, trials: Sequence[TrialRow]) -> Table:
    """A row for each trial: those that ended by what they found, then the others by number."""
    best_first = ranked(list(trials), sweep.direction)
    ordered = [*best_first, *(trial for trial in trials if trial not in best_first)]
    remarks = [key for key in dict.fromkeys(key for trial in trials for key in trial.found) if key != sweep.metric]
    head, *rows = progress_table(sweep, ordered)
    more = [[*(text(trial.found.get(key)) for key in remarks), trial.folder, trial.error] for trial in ordered]
    return [[*head, *remarks, "folder", "error"], *([*row, *rest] for row, rest in zip(rows, more, strict=True))]


def progress_table(sweep: Sweep, trials: Sequence[TrialRow]) -> Table:
    """A row for each trial, in the order given: what it is, and what it found so far."""
    names = list(sweep.axes())
    rows = [
        [
            str(trial.number),
            trial.state,
            *(text(trial.point.get(name)) for name in names),
            text(trial.value),
            text(trial.step),
            "" if trial.minutes is None else f"{trial.minutes:.1f}",
        ]
        for trial in trials
    ]
    return [["trial", "state", *names, sweep.metric, "update", "minutes"], *rows]


def seed_table(sweep: Sweep, trials: Sequence[TrialRow]) -> Table:
    """A row for each point but for the seed: mean, least and most over the seeds that ended, the best mean first."""
    names = [name for name in sweep.axes() if name != SEED]
    groups: dict[tuple[Value | None, ...], list[float]] = {}
    for trial in ranked(list(trials), sweep.direction):
        if trial.value is not None:
            groups.setdefault(tuple(trial.point.get(name) for name in names), []).append(trial.value)
    order = sorted(groups, key=lambda point: statistics.mean(groups[point]), reverse=sweep.direction == "maximize")
    rows = [
        [*(text(value) for value in point), text(statistics.mean(values)), text(min(values)), text(max(values)), str(n)]
        for point in order
        for values, n in [(groups[point], len(groups[point]))]
    ]
    return [[*names, f"mean {sweep.metric}", "least", "most", "seeds"], *rows]


def markdown_table(table: Table) -> str:
    """The table as GitHub and others read it."""
    head, *rows = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in table]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def text(value: Value | None) -> str:
    """A value as it stands in a table: four digits of a number."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _csv(table: Table) -> str:
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows(table)
    return target.getvalue()
