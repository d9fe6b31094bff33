"""Metrics of one or several runs against the update, from their ``metrics.jsonl``."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from transformer_jax.config.errors import DataError
from transformer_jax.visualization import canvas
from transformer_jax.visualization.canvas import FAINT_INK, HAIRLINE, INK, font

LINE_COLORS = ("#1b5a8a", "#d1702a", "#3c8d5a", "#8a4f9e", "#b23a48", "#6b7a89")
PANEL_WIDTH, PANEL_HEIGHT = 4.2, 2.4
LEFT, TOP, RIGHT, BOTTOM = 0.7, 0.45, 0.25, 0.6


def draw_curves(
    metrics: str | Path | Sequence[str | Path],
    keys: Sequence[str],
    path: str | Path,
    *,
    x_key: str = "step",
    title: str = "",
) -> Path:
    """Draws a panel for each of ``keys`` and in it a line for each ``metrics.jsonl``, as a PNG, and returns its path.

    A line is named after the folder of its file. Where a resumed run wrote an update twice the later record counts.
    Raises DataError when a file is missing or broken (file, line) or holds none of a key (with the keys it has).
    """
    files = [Path(metrics)] if isinstance(metrics, (str, Path)) else [Path(file) for file in metrics]
    runs = {file: read_series(file, keys, x_key) for file in files}
    top = TOP + 0.35 * bool(title)
    width, height = len(keys) * (LEFT + PANEL_WIDTH + RIGHT), top + PANEL_HEIGHT + BOTTOM
    figure = canvas.blank_figure(width, height)
    for column, key in enumerate(keys):
        left = LEFT + column * (LEFT + PANEL_WIDTH + RIGHT)
        axes = canvas.add_panel(figure, left, top, PANEL_WIDTH, PANEL_HEIGHT)
        for number, (file, series) in enumerate(runs.items()):
            color, name = LINE_COLORS[number % len(LINE_COLORS)], file.resolve().parent.name
            axes.plot(*series[key], color=color, linewidth=1.4, label=name, marker=_marker(series[key]), markersize=3)
        _style(axes, key, x_key)
    if len(runs) > 1:
        axes.legend(loc="best", prop=font(7.5), frameon=False, labelcolor=INK)
    if title:
        canvas.add_title(figure, title)
    return canvas.write_png(figure, path)


def present_keys(metrics: Path, keys: Sequence[str]) -> list[str]:
    """Those of ``keys`` that the file has a value of."""
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").split("\n")[:-1] if line]
    return [key for key in keys if any(record.get(key) is not None for record in records)]


def read_series(file: Path, keys: Sequence[str], x_key: str) -> dict[str, tuple[list[float], list[float]]]:
    """Returns the (x, y) values of each key in the order of x; records without the key are passed over.

    An unfinished last line, which a killed run leaves, is passed over too.
    """
    if not file.is_file():
        raise DataError(f"{file}: no such file; it should be the metrics.jsonl of a run directory")
    values: dict[str, dict[float, float]] = {key: {} for key in keys}
    seen: dict[str, None] = {}
    lines = file.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise DataError(f"{file}, line {number}: not a JSON record: {error}") from error
        seen.update(dict.fromkeys(record))
        for key in keys:
            if x_key in record and record.get(key) is not None:
                values[key][float(record[x_key])] = float(record[key])
    for key, points in values.items():
        if not points:
            found = ", ".join(seen) or "no records"
            raise DataError(f"{file}: no record has both {x_key!r} and {key!r}; it has {found}")
    return {key: ([*sorted(points)], [points[x] for x in sorted(points)]) for key, points in values.items()}


def _marker(series: tuple[list[float], list[float]]) -> str:
    """Few points are marked: a line through one point alone would be invisible."""
    return "o" if sum(math.isfinite(y) for y in series[1]) <= 30 else ""


def _style(axes: Axes, key: str, x_key: str) -> None:
    axes.set_title(key, loc="left", fontproperties=font(9.5, weight="bold"), color=INK, pad=6, parse_math=False)
    axes.set_xlabel(x_key, fontproperties=font(8), color=FAINT_INK)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.grid(color=HAIRLINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=FAINT_INK, labelsize=8, labelfontfamily=canvas.FONT_FAMILIES[0])
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(HAIRLINE)
