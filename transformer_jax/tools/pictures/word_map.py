"""Words as points of a plane, named as far as the names do not cover each other."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import HAIRLINE, INK, font

WIDTH, HEIGHT, MARGIN, TOP = 10.0, 7.5, 0.25, 0.5
POINT_COLOR = "#1b5a8a"
LABEL_POINTS = 7.5
SIDES = (
    ((4, 0), "left", "center"),
    ((-4, 0), "right", "center"),
    ((0, 4), "center", "bottom"),
    ((0, -4), "center", "top"),
)
"""Where a name may stand: how far from its point, in points, and how it is aligned there; the best first."""


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
    """Adds the names in their order, each beside its point where it covers no other name and, if it can be, no other point."""
    axes.autoscale_view()  # else places are those of an empty panel
    renderer = FigureCanvasAgg(axes.figure).get_renderer()  # type: ignore[arg-type]
    frame = axes.get_window_extent(renderer)
    dots = np.tile(axes.transData.transform(points), 2)
    names = np.zeros((0, 4))
    for number, word in enumerate(words):
        others = np.delete(dots, number, axis=0)
        boxes: list[tuple[bool, int, np.ndarray, Annotation]] = []
        for offset, horizontal, vertical in SIDES:
            label = axes.annotate(
                word, tuple(points[number]), offset, textcoords="offset points", ha=horizontal, va=vertical, color=INK
            )
            label.set_parse_math(False)
            label.set_fontproperties(font(LABEL_POINTS))
            extent = label.get_window_extent(renderer)
            box = np.array([extent.x0, extent.y0, extent.x1, extent.y1])
            inside = frame.x0 <= box[0] and box[2] <= frame.x1 and frame.y0 <= box[1] and box[3] <= frame.y1
            if inside and not _overlaps(box, names):
                boxes.append((_overlaps(box, others), len(boxes), box, label))
            else:
                label.remove()
        boxes.sort(key=lambda each: each[:2])
        if boxes:
            names = np.concatenate([names, [boxes[0][2]]])
        for *_, label in boxes[1:]:
            label.remove()


def _overlaps(box: np.ndarray, others: np.ndarray) -> bool:
    """Whether a box (left, bottom, right, top) meets one of ``others [N, 4]``."""
    apart = (others[:, 0] > box[2]) | (others[:, 2] < box[0]) | (others[:, 1] > box[3]) | (others[:, 3] < box[1])
    return not bool(apart.all())
