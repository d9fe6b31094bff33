"""The parallelogram of an analogy: a to b as c to d, and where b - a + c points."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import FAINT_INK, HAIRLINE, INK, font

WIDTH, HEIGHT, MARGIN, TOP, BOTTOM = 6.4, 5.0, 0.3, 0.55, 0.5
ROOM = 1.4
"""How much longer the panel is than the points need."""
OFFSET_COLOR, SIDE_COLOR = "#d1702a", "#9fb3c4"


def draw_analogy(words: Sequence[str], points: np.ndarray, target: np.ndarray, path: str | Path) -> Path:
    """Draws the words a, b, c, d at ``points [4, 2]`` and b - a + c at ``target [2]`` as a PNG, and returns its path.

    One unit is as long to the right as upwards, so that what looks parallel is parallel in this plane.
    """
    figure = canvas.blank_figure(WIDTH, HEIGHT)
    axes = canvas.add_panel(figure, MARGIN, TOP, WIDTH - 2 * MARGIN, HEIGHT - TOP - BOTTOM)
    a, b, c, d = points
    for start, end, style in ((a, c, "--"), (b, target, "--")):
        axes.plot(*zip(start, end, strict=True), color=SIDE_COLOR, linewidth=1.2, linestyle=style)
    for start, end in ((a, b), (c, target)):
        arrow = {"arrowstyle": "-|>", "color": OFFSET_COLOR, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate("", tuple(end), tuple(start), arrowprops=arrow)
    axes.plot(*zip(target, d, strict=True), color=FAINT_INK, linewidth=1.0, linestyle=":")
    axes.scatter(points[:, 0], points[:, 1], s=36, color=INK, zorder=3)
    axes.scatter(target[:1], target[1:], s=60, facecolors="white", edgecolors=OFFSET_COLOR, linewidths=1.6, zorder=3)
    middle = points[:3].mean(axis=0)
    for word, point, inner in zip(words, points, (middle, middle, middle, target), strict=True):
        # A name stands on the outer side of its point; that of d away from b - a + c, which may be close.
        is_above = point[1] >= inner[1]
        offset, side = (0, 9 if is_above else -9), "bottom" if is_above else "top"
        label = axes.annotate(word, tuple(point), offset, textcoords="offset points", ha="center", va=side, color=INK)
        label.set_path_effects([withStroke(linewidth=3, foreground="white")])
        label.set_fontproperties(font(11))
        label.set_parse_math(False)
    _add_key(figure, f"{words[1]} \N{MINUS SIGN} {words[0]} + {words[2]}")
    _show_all(axes, np.concatenate([points, [target]]))
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
    canvas.add_title(figure, f"{words[0]} is to {words[1]} as {words[2]} is to {words[3]}")
    return canvas.write_png(figure, path)


def _show_all(axes: Axes, points: np.ndarray) -> None:
    """Chooses the part of the plane that is shown: all points with room for their names, one scale for both directions."""
    size = np.array([WIDTH - 2 * MARGIN, HEIGHT - TOP - BOTTOM])
    low, high = points.min(axis=0), points.max(axis=0)
    half = size / 2 * max(*((high - low) * ROOM / size), 1e-9)
    middle = (low + high) / 2
    axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
    axes.set_ylim(middle[1] - half[1], middle[1] + half[1])


def _add_key(figure: Figure, formula: str) -> None:
    """Below the panel: the hollow circle is where the formula points."""
    circle = Line2D([], [], linestyle="", marker="o", markersize=8, markerfacecolor="white", markeredgewidth=1.6)
    circle.set_markeredgecolor(OFFSET_COLOR)
    key = figure.legend(
        [circle],
        [formula],
        loc="lower left",
        bbox_to_anchor=(MARGIN / WIDTH, 0.08 / HEIGHT),
        borderaxespad=0.0,
        prop=font(10),
        frameon=False,
        labelcolor=INK,
    )
    key.get_texts()[0].set_parse_math(False)
