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

    A line is called by its of ``names``, by default the folder of its file; it is missing where the file has none of a key
    yet. ``columns`` panels lie side by side, by default all. Where a resumed run wrote an update twice the later record
    counts. Raises DataError when a file is missing or broken (file, line) or when none has a key (with the keys it has).
    """
    files = [Path(metrics)] if isinstance(metrics, (str, Path)) else [Path(file) for file in metrics]
    names = names or [file.resolve().parent.name for file in files]
    runs = [read_series(file, present_keys(file, keys), x_key) for file in files]
    for key in keys:
        if not any(key in run for run in runs):
            read_series(files[0], [key], x_key)  # Raises, and says what there is instead.
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

    def draw() -> None:
        # The error that ended the run is the one to report: a full disk, a folder that is gone.
        with suppress(OSError, DataError):
            optional = [metric.key for metric in config.metrics if metric.needs]
            shown = dict.fromkeys(("train/loss", "validation/perplexity", config.selection.key, *optional))
            keys = present_keys(run.metrics, tuple(shown))
            if keys and is_first():
                draw_curves(run.metrics, keys, run.curves)

    try:
        yield
    except ConfigError:
        raise
    except BaseException:
        draw()
        raise
    draw()


def present_keys(metrics: Path, keys: Sequence[str]) -> list[str]:
    """Those of ``keys`` that the file has a value of."""
    records = read_records(metrics)
    return [key for key in keys if any(record.get(key) is not None for record in records)]


def read_series(file: Path, keys: Sequence[str], x_key: str) -> dict[str, Series]:
    """Returns the (x, y) values of each key in the order of x; records without the key are passed over.

    An unfinished last line, which a killed run leaves, is passed over too.
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
    """The line of run ``index``, with its own color and style; the points are marked where they are few."""
    style = LINE_STYLES[index // len(LINE_COLORS) % len(LINE_STYLES)]
    color = LINE_COLORS[index % len(LINE_COLORS)]
    return Line2D(*series, color=color, linestyle=style, linewidth=1.4, marker=_marker(series), markersize=3)


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


def _marker(series: Series) -> str:
    """Few points are marked: a line through one point alone would be invisible."""
    return "o" if 0 < sum(math.isfinite(y) for y in series[1]) <= 30 else ""


def _validated_at(runs: Sequence[dict[str, Series]]) -> list[float]:
    """Where the runs were validated, at most ``MOST_TICKS`` of these places, the last among them."""
    found = sorted(
        {x for run in runs for key, (places, _) in run.items() if key.startswith(VALIDATION) for x in places}
    )
    return found[::-1][:: max(math.ceil(len(found) / MOST_TICKS), 1)][::-1]


def _style(axes: Axes, key: str, x_key: str, ticks: Sequence[float]) -> None:
    axes.set_title(key, loc="left", fontproperties=font(9.5, weight="bold"), color=INK, pad=6, parse_math=False)
    axes.xaxis.set_major_locator(FixedLocator(ticks) if ticks else MaxNLocator(MOST_TICKS, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    canvas.style_axes(axes, AXIS_LABELS.get(x_key, x_key))
