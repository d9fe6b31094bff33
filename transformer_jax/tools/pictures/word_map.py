"""Words as points of a plane: a picture and a self-contained HTML page."""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import INK, LINE_COLORS, font

# Inches.
MAP_WIDTH = 10.0
MAP_HEIGHT = 7.5
MAP_MARGIN = 0.25
MAP_TOP = 0.5
LABEL_POINTS = 7.5
SIDES = (
    ((4, 0), "left", "center"),
    ((-4, 0), "right", "center"),
    ((0, 4), "center", "bottom"),
    ((0, -4), "center", "top"),
)
"""Offsets of a name from its point, in points, with its alignment, in order of preference."""


def draw_word_map(words: Sequence[str], points: np.ndarray, path: str | Path, *, title: str = "") -> Path:
    """Draw words at ``points [N, 2]`` as a PNG, and return its path.

    Names that would cover an earlier name are left out.
    """
    figure = canvas.blank_figure(MAP_WIDTH, MAP_HEIGHT)
    size = MAP_WIDTH - 2 * MAP_MARGIN, MAP_HEIGHT - MAP_TOP - MAP_MARGIN
    axes = canvas.add_panel(figure, MAP_MARGIN, MAP_TOP, *size)
    axes.scatter(points[:, 0], points[:, 1], s=9, color=LINE_COLORS[0], alpha=0.75, linewidths=0)
    canvas.frame(axes)
    axes.margins(0.06)
    _name_points(axes, words, points)
    if title:
        canvas.add_title(figure, title)
    return canvas.write_png(figure, path)


def _name_points(axes: Axes, words: Sequence[str], points: np.ndarray) -> None:
    """Add names beside their points, over no earlier name and, if possible, over no point."""
    axes.autoscale_view()  # Sets the limits that determine positions.
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
        boxes.sort(key=lambda candidate: candidate[:2])
        if boxes:
            names = np.concatenate([names, [boxes[0][2]]])
        for *_, label in boxes[1:]:
            label.remove()


def _overlaps(box: np.ndarray, others: np.ndarray) -> bool:
    """Return whether a box (left, bottom, right, top) overlaps one of ``others [N, 4]``."""
    apart = (others[:, 0] > box[2]) | (others[:, 2] < box[0]) | (others[:, 1] > box[3]) | (others[:, 3] < box[1])
    return not bool(apart.all())


def word_map_page(words: Sequence[str], points: np.ndarray, near: Sequence[Sequence[str]], title: str) -> str:
    """Return a page of words at ``points [N, 2]`` to search, move and zoom.

    ``page.html#word`` searches for a word. Hovering over a word shows its row of ``near``. Words
    are JSON without ``<``, so that none is read as HTML.
    """
    content = {"words": list(words), "points": np.round(points, 4).tolist(), "near": [list(row) for row in near]}
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = files("transformer_jax.tools.pictures").joinpath("word_map.html").read_text(encoding="utf-8")
    return Template(page).substitute(title=escape(title), data=data)
