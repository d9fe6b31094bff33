"""Panels of lines and of matrices, side by side in one picture."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.attention_maps import COLORS
from transformer_jax.tools.pictures.canvas import INK, LINE_COLORS, font

WIDTH, HEIGHT = 3.9, 2.7
TOP, RIGHT, BOTTOM, LEFT = 0.45, 0.3, 0.6, 0.75
LETTER_INCHES = 0.075
ROOM_ABOVE = 0.3
SIGNED_COLORS = LinearSegmentedColormap.from_list("signed", ["#b2582b", "#f3cdb4", "#ffffff", "#b5d3e0", "#1b5a8a"])


@runtime_checkable
class Panel(Protocol):
    """A part of a picture."""

    @property
    def title(self) -> str:
        """What it shows."""

    @property
    def margins(self) -> tuple[float, float]:
        """Inches that it needs on its left and below."""

    def draw(self, axes: Axes) -> None:
        """Draws into ``axes``."""


@dataclass(frozen=True)
class LinePanel:
    """Lines by name, each its x and y values; ``dotted`` ones are for comparison. ``marks`` are single points.

    ``has_room_above``: the lines fill the panel, so its names have room of their own above them.
    """

    title: str
    lines: Mapping[str, Sequence[npt.ArrayLike]]
    x_label: str
    y_label: str
    dotted: tuple[str, ...] = ()
    x_scale: str = "linear"
    y_scale: str = "linear"
    marks: str = ""
    has_room_above: bool = False

    @property
    def margins(self) -> tuple[float, float]:
        """Inches that it needs on its left and below."""
        return LEFT, BOTTOM

    def draw(self, axes: Axes) -> None:
        """Draws into ``axes``; a name that starts with ``_`` is not in the legend."""
        for number, (name, (x, y)) in enumerate(self.lines.items()):
            style = ":" if name in self.dotted else "" if self.marks else "-"
            color = LINE_COLORS[number % len(LINE_COLORS)]
            axes.plot(x, y, label=name, color=color, linestyle=style, linewidth=1.4, marker=self.marks, markersize=4)
        axes.set_xscale(self.x_scale, **({"base": 2} if self.x_scale == "log" else {}))
        axes.set_yscale(self.y_scale)
        canvas.style_axes(axes, self.x_label, self.y_label)
        if any(not name.startswith("_") for name in self.lines):
            place: dict[str, Any] = {}
            if self.has_room_above:
                low, high = axes.get_ylim()
                is_log = self.y_scale == "log"
                axes.set_ylim(top=high * (high / low) ** ROOM_ABOVE if is_log else high + (high - low) * ROOM_ABOVE)
                place = {"loc": "upper left", "ncols": 2}
            legend = axes.legend(prop=font(7.5), framealpha=0.85, edgecolor="none", labelcolor=INK, **place)
            for text in legend.get_texts():
                text.set_parse_math(False)


@dataclass(frozen=True)
class MatrixPanel:
    """A matrix [R, C] as colored cells, from 0 to its largest value, or around 0 where ``is_signed``.

    ``limit`` stands for the largest value. ``rows`` and ``columns`` name the cells; their values are written into them where
    ``numbers`` is a format, such as ``.1f``.
    """

    title: str
    matrix: np.ndarray
    x_label: str = ""
    y_label: str = ""
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    is_signed: bool = False
    numbers: str = ""
    limit: float = 0.0

    @property
    def margins(self) -> tuple[float, float]:
        """Inches that it needs on its left and below."""
        left, bottom = (LETTER_INCHES * max(map(len, names), default=0) + 0.25 for names in (self.rows, self.columns))
        return max(LEFT, left + 0.2 * bool(self.y_label)), max(BOTTOM, bottom + 0.2 * bool(self.x_label))

    def draw(self, axes: Axes) -> None:
        """Draws into ``axes``."""
        limit = self.limit or float(np.abs(self.matrix).max()) or 1.0
        colors: Colormap = SIGNED_COLORS if self.is_signed else COLORS
        low = -limit if self.is_signed else 0.0
        axes.imshow(self.matrix, cmap=colors, vmin=low, vmax=limit, aspect="auto", interpolation="nearest")
        canvas.style_axes(axes, self.x_label, self.y_label)
        axes.grid(False)
        for names, set_ticks, turned in ((self.rows, axes.set_yticks, 0), (self.columns, axes.set_xticks, 90)):
            if names:
                set_ticks(range(len(names)), labels=list(names), rotation=turned, fontproperties=font(7.5), color=INK)
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            label.set_parse_math(False)
        for spine in axes.spines.values():
            spine.set_visible(True)
        for (row, column), value in np.ndenumerate(self.matrix) if self.numbers else ():
            color = "white" if abs(value) > 0.6 * limit else INK
            text = axes.text(column, row, format(value, self.numbers), ha="center", va="center", color=color)
            text.set_fontproperties(font(7))


def draw_panels(panels: Sequence[Panel], path: str | Path, *, columns: int = 3, title: str = "") -> Path:
    """Draws the panels row by row, ``columns`` side by side, as a PNG, and returns its path."""
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
