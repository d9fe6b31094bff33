"""Curves of the metrics in ``metrics.jsonl`` of one or several runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from transformer_jax.config import ConfigError, DataError
from transformer_jax.errors import complain
from transformer_jax.files.checked_json import read_log
from transformer_jax.files.paths import as_path
from transformer_jax.run_directory.layout import short_names
from transformer_jax.runs.run import Hook
from transformer_jax.runs.train_run import TrainingStart
from transformer_jax.runtime.distributed import is_first

Series = tuple[list[float], list[float]]
"""Updates and values."""


def draw_curves(
    metrics: str | Path | Sequence[str | Path],
    keys: Sequence[str],
    path: str | Path,
    *,
    names: Sequence[str] = (),
    columns: int = 0,
) -> Path:
    """Draw a panel per key with a line per ``metrics.jsonl`` as a PNG, and return its path.

    All panels share one x axis from 0. The legend is below the first panel. A single run has its
    name and values. Damaged lines are left out, with a warning.

    Args:
        metrics: One file or several.
        keys: Metrics. A file without a metric has no line for it.
        path: The picture.
        names: Names of the lines, by default the shortest that tell the folders apart.
        columns: Panels side by side, by default all.

    Raises:
        DataError: A file is missing, or no file has a key.
    """
    # Matplotlib would delay the start of training by 0.4 s.
    from transformer_jax.tools.pictures.panels import LinePanel, draw_panels

    files = [as_path(metrics)] if isinstance(metrics, (str, PurePath)) else [as_path(file) for file in metrics]
    names = names or short_names([file.parent for file in files])
    logs = [read_log(file) for file in files]
    runs = [_series(log.records, keys) for log in logs]
    for problem in (problem for log in logs for problem in log.problems):
        complain(f"WARNING: {problem}; left out")
    panels, last = [], max((x for run in runs for series in run.values() for x in series[0]), default=1.0)
    for number, key in enumerate(keys):
        if not any(key in run for run in runs):
            others = ", ".join(dict.fromkeys(name for record in logs[0].records for name in record))
            raise DataError(f"{files[0]}: no record has {key!r}; it has {others or 'no records'}")
        # The only legend is below the first panel.
        unlisted = () if len(files) > 1 and number == 0 else tuple(names)
        lines = {name: run.get(key, ([], [])) for name, run in zip(names, runs, strict=True)}
        panel = LinePanel(key, lines, "updates", "", x_scale="integer", unlisted=unlisted)
        panels.append(replace(panel, x_limits=(0.0, 1.03 * last), has_values=len(files) == 1))
    return draw_panels(panels, path, title=names[0] if len(files) == 1 else "", columns=columns or len(keys))


@contextmanager
def curves_at_end(start: TrainingStart) -> Iterator[Sequence[Hook]]:
    """Draw the curves of a run when its training ends, unless it ends with ConfigError."""
    is_refused, run, config = False, start.directory, start.config
    try:
        yield ()
    except ConfigError:
        is_refused = True
        raise
    finally:
        if not is_refused and is_first():
            # A full disk or a missing folder must not hide the error that ended the run.
            with suppress(OSError, DataError):
                optional = [metric.key for metric in config.metrics if metric.needs]
                shown = dict.fromkeys(("train/loss", "validation/perplexity", config.selection.key, *optional))
                if series := read_series(run.metrics, [*shown]):
                    draw_curves(run.metrics, [*series], run.curves)


def read_series(file: Path, keys: Sequence[str]) -> dict[str, Series]:
    """Return the series of the ``keys`` that the file has, in the order of the updates.

    If a resumed run wrote an update twice, the later record counts. The unfinished last line of a
    killed run is skipped.
    """
    return _series(read_log(file).records, keys)


def _series(records: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, Series]:
    values: dict[str, dict[float, float]] = {key: {} for key in keys}
    for record in records:
        for key in keys:
            if "step" in record and record.get(key) is not None:
                values[key][float(record["step"])] = float(record[key])
    return {key: ([*sorted(points)], [points[x] for x in sorted(points)]) for key, points in values.items() if points}
