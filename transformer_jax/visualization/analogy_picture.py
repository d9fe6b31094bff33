"""The parallelogram of an analogy: a to b as c to d, and where b - a + c points."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer_jax.visualization import canvas
from transformer_jax.visualization.canvas import FAINT_INK, HAIRLINE, INK, font

WIDTH, HEIGHT, MARGIN, TOP = 6.4, 4.8, 0.3, 0.55
OFFSET_COLOR, SIDE_COLOR = "#d1702a", "#9fb3c4"


def draw_analogy(words: Sequence[str], points: np.ndarray, target: np.ndarray, path: str | Path) -> Path:
    """Draws the words a, b, c, d at ``points [4, 2]`` and b - a + c at ``target [2]`` as a PNG, and returns its path.

    One unit is as long to the right as upwards, so that what looks parallel is parallel in this plane.
    """
    figure = canvas.blank_figure(WIDTH, HEIGHT)
    axes = canvas.add_panel(figure, MARGIN, TOP, WIDTH - 2 * MARGIN, HEIGHT - TOP - MARGIN)
    a, b, c, d = points
    for start, end, style in ((a, c, "--"), (b, target, "--")):
        axes.plot(*zip(start, end, strict=True), color=SIDE_COLOR, linewidth=1.2, linestyle=style)
    for start, end in ((a, b), (c, target)):
        arrow = {"arrowstyle": "-|>", "color": OFFSET_COLOR, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate("", tuple(end), tuple(start), arrowprops=arrow)
    axes.plot(*zip(target, d, strict=True), color=FAINT_INK, linewidth=1.0, linestyle=":")
    axes.scatter(points[:, 0], points[:, 1], s=36, color=INK, zorder=3)
    axes.scatter(target[:1], target[1:], s=60, facecolors="white", edgecolors=OFFSET_COLOR, linewidths=1.6, zorder=3)
    middle = points.mean(axis=0)
    for word, point in [*zip(words, points, strict=True), (f"{words[1]} − {words[0]} + {words[2]}", target)]:
        is_target = point is target
        # The name of a word is on the outer side of it, the sum's on the other, since the two may lie close together.
        is_above = (point[1] >= middle[1]) != is_target
        offset, side = (0, 9 if is_above else -9), "bottom" if is_above else "top"
        label = axes.annotate(word, tuple(point), offset, textcoords="offset points", ha="center", va=side)
        label.set_fontproperties(font(9 if is_target else 11))
        label.set_color(OFFSET_COLOR if is_target else INK)
        label.set_parse_math(False)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.22)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
    canvas.add_title(figure, f"{words[0]} is to {words[1]} as {words[2]} is to {words[3]}")
    return canvas.write_png(figure, path)
