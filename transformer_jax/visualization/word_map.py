"""Words as points of a plane, named as far as the names do not cover each other."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from transformer_jax.visualization import canvas
from transformer_jax.visualization.canvas import HAIRLINE, INK, font

WIDTH, HEIGHT, MARGIN, TOP = 10.0, 7.5, 0.25, 0.5
POINT_COLOR = "#1b5a8a"
LABEL_POINTS = 7.5


def draw_word_map(words: Sequence[str], points: np.ndarray, path: str | Path, *, title: str = "") -> Path:
    """Draws words at ``points [N, 2]`` as a PNG, and returns its path.

    A name that would cover one before it is left out: the first words have the best chance.
    """
    figure = canvas.blank_figure(WIDTH, HEIGHT)
    axes = canvas.add_panel(figure, MARGIN, TOP, WIDTH - 2 * MARGIN, HEIGHT - TOP - MARGIN)
    axes.scatter(points[:, 0], points[:, 1], s=9, color=POINT_COLOR, alpha=0.75, linewidths=0)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.06)
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
    _name_points(axes, words, points)
    if title:
        canvas.add_title(figure, title)
    return canvas.write_png(figure, path)


def _name_points(axes: Axes, words: Sequence[str], points: np.ndarray) -> None:
    """Adds the names in their order, each right of its point or, where that is taken, left, above or below."""
    renderer = FigureCanvasAgg(axes.figure).get_renderer()  # type: ignore[arg-type]
    placed = np.zeros((0, 4))
    sides = {"right": (4, 0, "left", "center"), "left": (-4, 0, "right", "center")}
    sides |= {"above": (0, 4, "center", "bottom"), "below": (0, -4, "center", "top")}
    frame = axes.get_window_extent(renderer)
    for word, point in zip(words, points.tolist(), strict=True):
        for right, up, horizontal, vertical in sides.values():
            label = axes.annotate(
                word, tuple(point), (right, up), textcoords="offset points", ha=horizontal, va=vertical, color=INK
            )
            label.set_fontproperties(font(LABEL_POINTS))
            label.set_parse_math(False)
            box = label.get_window_extent(renderer)
            apart = (
                (placed[:, 0] > box.x1) | (placed[:, 2] < box.x0) | (placed[:, 1] > box.y1) | (placed[:, 3] < box.y0)
            )
            if apart.all() and frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1:
                placed = np.concatenate([placed, [[box.x0, box.y0, box.x1, box.y1]]])
                break
            label.remove()
