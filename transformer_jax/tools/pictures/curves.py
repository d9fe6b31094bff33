"""Curves of the metrics in ``metrics.jsonl`` of one or several runs."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.atomic_files import read_records
from transformer_jax.runtime.distributed import is_first
from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import INK, LINE_COLORS, font

# After all colors are used, they repeat with the next style.
LINE_STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
PANEL_WIDTH, PANEL_HEIGHT = 4.2, 2.4
LEFT, TOP, RIGHT, BOTTOM = 0.7, 0.45, 0.25, 0.6
MOST_TICKS = 6
LEGEND_LINE, LEGEND_HANDLE, LEGEND_LETTER = 0.2, 0.75, 0.075

Series = tuple[list[float], list[float]]
"""Updates and values of a line."""


def draw_curves(
    metrics: str | Path | Sequence[str | Path],
    keys: Sequence[str],
    path: str | Path,
    *,
    names: Sequence[str] = (),
    columns: int = 0,
) -> Path:
    """Draws a panel per key with a line per ``metrics.jsonl`` as a PNG, and returns its path.

    ``names`` of the lines are by default the folders of the files; a file without a key has no line for it. ``columns``: panels
    side by side, by default all. Raises DataError if a file is missing or damaged (file, line), or no file has a key.
    """
    files = [Path(metrics)] if isinstance(metrics, (str, Path)) else [Path(file) for file in metrics]
    names = names or [file.resolve().parent.name for file in files]
    runs = [read_series(file, keys) for file in files]
    for key in keys:
        if not any(key in run for run in runs):
            found = ", ".join(dict.fromkeys(name for record in read_records(files[0]) for name in record))
            raise DataError(f"{files[0]}: no record has {key!r}; it has {found or 'no records'}")
    columns = min(columns or len(keys), len(keys))
    width = columns * (LEFT + PANEL_WIDTH + RIGHT)
    per_line = max(1, int(width / (LEGEND_HANDLE + LEGEND_LETTER * max(map(len, names)))))
    legend = LEGEND_LINE * (1 + math.ceil(len(names) / per_line)) if len(files) > 1 else 0
    row_height = TOP + PANEL_HEIGHT + BOTTOM
    figure = canvas.blank_figure(width, math.ceil(len(keys) / columns) * row_height + legend)
    for number, key in enumerate(keys):
        row, column = divmod(number, columns)
        left = LEFT + column * (LEFT + PANEL_WIDTH + RIGHT)
        axes = canvas.add_panel(figure, left, row * row_height + TOP, PANEL_WIDTH, PANEL_HEIGHT)
        for index, run in enumerate(runs):
            axes.add_line(_line(index, run.get(key, ([], []))))
        axes.autoscale_view()
        _style(axes, key)
    if legend:
        _add_legend(figure, names, per_line)
    return canvas.write_png(figure, path)


@contextmanager
def curves_at_end(run: RunDirectory, config: ExperimentConfig) -> Iterator[None]:
    """Draws the curves of a run when the block that trains it ends, unless it ends with ConfigError."""
    is_refused = False
    try:
        yield
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
    """The series of each of ``keys`` that the file has, in the order of the updates.

    If a resumed run wrote an update twice, the later record counts. The unfinished last line of a killed run is skipped.
    """
    values: dict[str, dict[float, float]] = {key: {} for key in keys}
    for record in read_records(file):
        for key in keys:
            if "step" in record and record.get(key) is not None:
                values[key][float(record["step"])] = float(record[key])
    return {key: ([*sorted(points)], [points[x] for x in sorted(points)]) for key, points in values.items() if points}


def _line(index: int, series: Series) -> Line2D:
    """The line of run ``index`` in its color and style, with markers if it has few points: one point has no line."""
    marker = "o" if 0 < sum(math.isfinite(y) for y in series[1]) <= 30 else ""
    style = LINE_STYLES[index // len(LINE_COLORS) % len(LINE_STYLES)]
    color = LINE_COLORS[index % len(LINE_COLORS)]
    return Line2D(*series, color=color, linestyle=style, linewidth=1.4, marker=marker, markersize=3)


def _add_legend(figure: Figure, names: Sequence[str], per_line: int) -> None:
    """Adds the names of the lines below the panels, ``per_line`` side by side, without math parsing."""
    width, height = figure.get_size_inches()
    legend = figure.legend(
        [_line(index, ([], [])) for index in range(len(names))],
        [str(name) for name in names],
        ncols=per_line,
        handlelength=2.6,
        loc="lower left",
        bbox_to_anchor=(LEFT / width, 0.5 * LEGEND_LINE / height),
        borderaxespad=0.0,
        prop=font(8),
        frameon=False,
        labelcolor=INK,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _style(axes: Axes, key: str) -> None:
    axes.set_title(key, loc="left", fontproperties=font(9.5, weight="bold"), color=INK, pad=6, parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS, integer=True))
    canvas.style_axes(axes, "updates")
