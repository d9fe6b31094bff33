"""Pictures of panels side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import INK, LINE_COLORS, LINE_STYLES, font

COLUMNS = 3
# Inches of the axes and of the margins around them.
WIDTH = 3.9
HEIGHT = 2.7
TOP = 0.45
RIGHT = 0.45
BOTTOM = 0.6
LEFT = 0.75
VALUE_POINTS = 7
# On a line with more points only the last has its value.
MAX_VALUES = 6
# A line with more points has no markers.
MAX_MARKERS = 30
LEGEND_POINTS = 7.5
# Inches of a line of the legend, of the mark before a name, and of a letter.
LEGEND_LINE = 0.17
LEGEND_HANDLE = 0.5
LEGEND_LETTER = 0.062


class Panel(Protocol):
    """A drawing with a title."""

    @property
    def title(self) -> str: ...

    @property
    def margins(self) -> tuple[float, float]:
        """Margins on the left and below, in inches."""
        ...

    def draw(self, axes: Axes) -> None: ...


@dataclass(frozen=True)
class LinePanel:
    """Lines by name, with x and y values.

    Attributes:
        dotted: Names of lines for comparison.
        x_scale: ``linear``, ``integer``, ``log`` or ``log2``, which has powers of 2.
        marks: Markers instead of lines.
        bands: Lower and upper values around lines, by name.
        unlisted: Names of lines that are not in the legend.
        has_values: Whether values are written at the points of a line, or at the last of many.
    """

    title: str
    lines: Mapping[str, Sequence[npt.ArrayLike]]
    x_label: str
    y_label: str
    dotted: tuple[str, ...] = ()
    x_scale: str = "linear"
    y_scale: str = "linear"
    marks: str = ""
    bands: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()
    x_limits: tuple[float, float] | None = None
    has_values: bool = False

    @property
    def _listed(self) -> list[str]:
        return [name for name in self.lines if name not in self.unlisted]

    @property
    def _names_per_line(self) -> int:
        """The number of names of the legend that fit side by side."""
        return max(int(WIDTH / (LEGEND_HANDLE + LEGEND_LETTER * max(map(len, self._listed), default=1))), 1)

    @property
    def margins(self) -> tuple[float, float]:
        """Margins on the left and below, in inches, with the legend below."""
        return LEFT, BOTTOM + LEGEND_LINE * math.ceil(len(self._listed) / self._names_per_line)

    def draw(self, axes: Axes) -> None:
        drawn = {}
        for number, (name, (x, y)) in enumerate(self.lines.items()):
            repeated, color = divmod(number, len(LINE_COLORS))
            style = ":" if name in self.dotted else "" if self.marks else LINE_STYLES[repeated % len(LINE_STYLES)]
            # Without markers, straight lines between few points look like measurements.
            is_marked = name not in self.dotted and 0 < len(np.asarray(x)) <= MAX_MARKERS
            marker = self.marks or "o" * is_marked
            (drawn[name],) = axes.plot(
                x, y, color=LINE_COLORS[color], linestyle=style, linewidth=1.4, marker=marker, markersize=3.5
            )
        if self.x_scale.startswith("log"):
            axes.set_xscale("log", base=2 if self.x_scale == "log2" else 10)
        elif self.x_scale == "integer":
            axes.locator_params(axis="x", integer=True)
        axes.set_yscale(self.y_scale)
        if self.x_limits:
            axes.set_xlim(self.x_limits)
        if self.has_values:
            for line in drawn.values():
                self._write_values(axes, line)
        for name, line in drawn.items():
            if band := self.bands.get(name):
                low, high = band
                axes.fill_between(line.get_xdata(), low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        canvas.style_axes(axes, self.x_label, self.y_label)
        if self._listed:
            legend = axes.legend(
                [drawn[name] for name in self._listed],
                self._listed,
                prop=font(LEGEND_POINTS),
                labelcolor=INK,
                frameon=False,
                ncols=self._names_per_line,
                loc="upper left",
                bbox_to_anchor=(0.0, -BOTTOM * 0.8 / HEIGHT),
                borderaxespad=0.0,
            )
            for text in legend.get_texts():
                text.set_parse_math(False)

    def _write_values(self, axes: Axes, line: Line2D) -> None:
        axes.margins(y=0.12)
        points = np.asarray(line.get_xydata(), float)
        for x, y in points if len(points) <= MAX_VALUES else points[-1:]:
            axes.annotate(
                f"{y:#.4g}",
                (x, y),
                (0, 5),
                textcoords="offset points",
                ha="center",
                color=line.get_color(),
                fontproperties=font(VALUE_POINTS),
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )


@dataclass(frozen=True)
class HeatMapPanel:
    """A matrix of colors with its ``values`` [R, C] in the cells. A cell with NaN is empty."""

    title: str
    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    x_label: str
    y_label: str
    digits: int

    @property
    def margins(self) -> tuple[float, float]:
        return LEFT, BOTTOM

    def draw(self, axes: Axes) -> None:
        axes.imshow(self.values, cmap=canvas.SEQUENTIAL, aspect="auto", interpolation="nearest")
        canvas.style_axes(axes, self.x_label, self.y_label)
        canvas.name_cells(axes, self.rows, self.columns, LEGEND_POINTS)
        axes.grid(visible=False)
        axes.tick_params(axis="x", labelrotation=0)
        middle = (np.nanmin(self.values) + np.nanmax(self.values)) / 2
        for row, column in np.ndindex(*self.values.shape):
            value = float(self.values[row, column])
            if np.isfinite(value):
                color = "white" if value > middle else INK
                text = axes.text(column, row, f"{value:.{self.digits}f}", ha="center", va="center", color=color)
                text.set_fontproperties(font(LEGEND_POINTS))


def draw_panels(panels: Sequence[Panel], path: str | Path, *, title: str = "", columns: int = COLUMNS) -> Path:
    """Draw the panels, up to ``columns`` side by side, as a PNG, and return its path."""
    columns = min(columns, len(panels))
    left = max(panel.margins[0] for panel in panels)
    bottom = max(panel.margins[1] for panel in panels)
    wide, high = left + WIDTH + RIGHT, TOP + HEIGHT + bottom
    above = 0.35 * bool(title)
    figure = canvas.blank_figure(columns * wide, above + math.ceil(len(panels) / columns) * high)
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        axes = canvas.add_panel(figure, column * wide + left, above + row * high + TOP, WIDTH, HEIGHT)
        panel.draw(axes)
        axes.set_title(
            panel.title, loc="left", fontproperties=font(9.5, weight="bold"), color=INK, pad=6, parse_math=False
        )
    if title:
        canvas.add_title(figure, title)
    return canvas.write_png(figure, path)
