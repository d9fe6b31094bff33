"""Metrics of one or several runs against the update, from their ``metrics.jsonl``."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.atomic_files import read_records
from transformer_jax.runtime.distributed import is_first
from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import INK, LINE_COLORS, font

# When every color was used they come again with the next style.
LINE_STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
PANEL_WIDTH, PANEL_HEIGHT = 4.2, 2.4
LEFT, TOP, RIGHT, BOTTOM = 0.7, 0.45, 0.25, 0.6
MOST_TICKS, VALIDATION = 6, "validation/"
AXIS_LABELS = {"step": "updates"}
LEGEND_LINE, LEGEND_HANDLE, LEGEND_LETTER = 0.2, 0.75, 0.075

Series = tuple[list[float], list[float]]
"""The x and the y values of a line."""


def draw_curves(
    metrics: str | Path | Sequence[str | Path],
    keys: Sequence[str],
    path: str | Path,
    *,
    names: Sequence[str] = (),
    columns: int = 0,
    x_key: str = "step",
    title: str = "",
) -> Path:
    """Draws a panel for each of ``keys`` and in it a line for each ``metrics.jsonl``, as a PNG, and returns its path.

    ``names`` of the lines are by default the folders of the files; a line is missing if its file does not have the key yet.
    ``columns`` panels lie side by side, by default all. If a resumed run wrote an update twice, the later record counts. Raises
    DataError when a file is missing or broken (file, line) or when none has a key (with the keys it has).
    """
    files = [Path(metrics)] if isinstance(metrics, (str, Path)) else [Path(file) for file in metrics]
    names = names or [file.resolve().parent.name for file in files]
    runs = [read_series(file, present_keys(file, keys), x_key) for file in files]
    for key in keys:
        if not any(key in run for run in runs):
            read_series(files[0], [key], x_key)  # Raises, with the keys of the file.
    columns = min(columns or len(keys), len(keys))
    width = columns * (LEFT + PANEL_WIDTH + RIGHT)
    per_line = max(1, int(width / (LEGEND_HANDLE + LEGEND_LETTER * max(map(len, names)))))
    legend = LEGEND_LINE * (1 + math.ceil(len(names) / per_line)) if len(files) > 1 else 0
    top, row_height = 0.35 * bool(title), TOP + PANEL_HEIGHT + BOTTOM
    figure = canvas.blank_figure(width, top + math.ceil(len(keys) / columns) * row_height + legend)
    for number, key in enumerate(keys):
        row, column = divmod(number, columns)
        left = LEFT + column * (LEFT + PANEL_WIDTH + RIGHT)
        axes = canvas.add_panel(figure, left, top + row * row_height + TOP, PANEL_WIDTH, PANEL_HEIGHT)
        for index, run in enumerate(runs):
            axes.add_line(_line(index, run.get(key, ([], []))))
        axes.autoscale_view()
        _style(axes, key, x_key, _validated_at(runs))
    if legend:
        _add_legend(figure, names, per_line)
    if title:
        canvas.add_title(figure, title)
    return canvas.write_png(figure, path)


@contextmanager
def curves_at_end(run: RunDirectory, config: ExperimentConfig) -> Iterator[None]:
    """Draws the curves of a run when the block, which trains it, ends, unless the run was refused."""
    is_refused = False
    try:
        yield
    except ConfigError:
        is_refused = True
        raise
    finally:
        if not is_refused and is_first():
            # An error that ended the run is the one to report, not a full disk or a missing folder.
            with suppress(OSError, DataError):
                optional = [metric.key for metric in config.metrics if metric.needs]
                shown = dict.fromkeys(("train/loss", "validation/perplexity", config.selection.key, *optional))
                if keys := present_keys(run.metrics, tuple(shown)):
                    draw_curves(run.metrics, keys, run.curves)


def present_keys(metrics: Path, keys: Sequence[str]) -> list[str]:
    """The ``keys`` with a value in the file."""
    records = read_records(metrics)
    return [key for key in keys if any(record.get(key) is not None for record in records)]


def read_series(file: Path, keys: Sequence[str], x_key: str) -> dict[str, Series]:
    """The (x, y) values of each key in the order of x; skips records without the key, and the unfinished last line of a
    killed run.
    """
    values: dict[str, dict[float, float]] = {key: {} for key in keys}
    records = read_records(file)
    for record in records:
        for key in keys:
            if x_key in record and record.get(key) is not None:
                values[key][float(record[x_key])] = float(record[key])
    for key, points in values.items():
        if not points:
            found = ", ".join(dict.fromkeys(name for record in records for name in record)) or "no records"
            raise DataError(f"{file}: no record has both {x_key!r} and {key!r}; it has {found}")
    return {key: ([*sorted(points)], [points[x] for x in sorted(points)]) for key, points in values.items()}


def _line(index: int, series: Series) -> Line2D:
    """The line of run ``index``, with its own color and style.

    Few points are marked: a line through one point alone would be invisible.
    """
    marker = "o" if 0 < sum(math.isfinite(y) for y in series[1]) <= 30 else ""
    style = LINE_STYLES[index // len(LINE_COLORS) % len(LINE_STYLES)]
    color = LINE_COLORS[index % len(LINE_COLORS)]
    return Line2D(*series, color=color, linestyle=style, linewidth=1.4, marker=marker, markersize=3)


def _add_legend(figure: Figure, names: Sequence[str], per_line: int) -> None:
    """Names of the lines below the panels, ``per_line`` side by side, dollar signs as they are."""
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


def _validated_at(runs: Sequence[dict[str, Series]]) -> list[float]:
    """The updates at which the runs were validated, at most ``MOST_TICKS``, with the last one."""
    found = sorted({x for run in runs for key, (xs, _) in run.items() if key.startswith(VALIDATION) for x in xs})
    return found[::-1][:: max(math.ceil(len(found) / MOST_TICKS), 1)][::-1]


def _style(axes: Axes, key: str, x_key: str, ticks: Sequence[float]) -> None:
    axes.set_title(key, loc="left", fontproperties=font(9.5, weight="bold"), color=INK, pad=6, parse_math=False)
    axes.xaxis.set_major_locator(FixedLocator(ticks) if ticks else MaxNLocator(MOST_TICKS, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    canvas.style_axes(axes, AXIS_LABELS.get(x_key, x_key))
