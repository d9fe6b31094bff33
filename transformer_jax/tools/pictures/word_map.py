"""Words as points of a plane: a picture, a self-contained HTML page, and the parallelogram of an analogy."""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import FAINT_INK, INK, LINE_COLORS, MARK, font

MAP_WIDTH, MAP_HEIGHT, MAP_MARGIN, MAP_TOP = 10.0, 7.5, 0.25, 0.5
LABEL_POINTS = 7.5
SIDES = (
    ((4, 0), "left", "center"),
    ((-4, 0), "right", "center"),
    ((0, 4), "center", "bottom"),
    ((0, -4), "center", "top"),
)
"""Offsets of a name from its point, in points, with its alignment, in order of preference."""
WIDTH, HEIGHT, MARGIN, TOP, BOTTOM = 6.4, 5.0, 0.3, 0.55, 0.5
MARGIN_SHARE = 0.2
"""Margins of the panel of an analogy relative to the extent of its points, to leave space for names."""
SIDE_COLOR = "#9fb3c4"


def draw_word_map(words: Sequence[str], points: np.ndarray, path: str | Path, *, title: str = "") -> Path:
    """Draws words at ``points [N, 2]`` as a PNG, and returns its path; omits names that would cover an earlier name."""
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
    """Adds each name beside its point where it covers no earlier name and, if possible, no other point."""
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
        boxes.sort(key=lambda each: each[:2])
        if boxes:
            names = np.concatenate([names, [boxes[0][2]]])
        for *_, label in boxes[1:]:
            label.remove()


def _overlaps(box: np.ndarray, others: np.ndarray) -> bool:
    """Whether a box (left, bottom, right, top) overlaps one of ``others [N, 4]``."""
    apart = (others[:, 0] > box[2]) | (others[:, 2] < box[0]) | (others[:, 1] > box[3]) | (others[:, 3] < box[1])
    return not bool(apart.all())


def word_map_page(words: Sequence[str], points: np.ndarray, near: Sequence[Sequence[str]], title: str) -> str:
    """A page of words at ``points [N, 2]`` to search, move and zoom; ``page.html#word`` searches for a word.

    Hovering over a word shows its row of ``near``. The page contains the words as JSON without ``<``, and shows them as text
    nodes, so that no word is read as HTML.
    """
    content = {"words": list(words), "points": np.round(points, 4).tolist(), "near": [list(each) for each in near]}
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = files("transformer_jax.tools.pictures").joinpath("word_map.html").read_text(encoding="utf-8")
    return Template(page).substitute(title=escape(title), data=data)


def draw_analogy(words: Sequence[str], points: np.ndarray, target: np.ndarray, path: str | Path) -> Path:
    """Draws the words a, b, c, d at ``points [4, 2]`` and b - a + c at ``target [2]`` as a PNG, and returns its path.

    Both axes have the same scale.
    """
    figure = canvas.blank_figure(WIDTH, HEIGHT)
    axes = canvas.add_panel(figure, MARGIN, TOP, WIDTH - 2 * MARGIN, HEIGHT - TOP - BOTTOM)
    a, b, c, d = points
    for start, end in ((a, c), (b, target)):
        axes.plot(*zip(start, end, strict=True), color=SIDE_COLOR, linewidth=1.2, linestyle="--")
    for start, end in ((a, b), (c, target)):
        arrow = {"arrowstyle": "-|>", "color": MARK, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate("", tuple(end), tuple(start), arrowprops=arrow)
    axes.plot(*zip(target, d, strict=True), color=FAINT_INK, linewidth=1.0, linestyle=":")
    axes.scatter(points[:, 0], points[:, 1], s=36, color=INK, zorder=3)
    total = f"{words[1]} \N{MINUS SIGN} {words[0]} + {words[2]}"
    circle = axes.scatter(target[:1], target[1:], s=60, facecolors="white", edgecolors=MARK, linewidths=1.6)
    circle.set(zorder=3, label=total)
    middle = points[:3].mean(axis=0)
    for word, point, inner in zip(words, points, (middle, middle, middle, target), strict=True):
        # Names are on the outer side of their points; the name of d is on the side away from b - a + c.
        offset, side = ((0, 9), "bottom") if point[1] >= inner[1] else ((0, -9), "top")
        label = axes.annotate(word, tuple(point), offset, textcoords="offset points", ha="center", va=side, color=INK)
        label.set_path_effects([withStroke(linewidth=3, foreground="white")])
        label.set_fontproperties(font(11))
        label.set_parse_math(False)
    key = axes.legend(loc="upper left", bbox_to_anchor=(0, 0), prop=font(10), frameon=False, labelcolor=INK)
    key.get_texts()[0].set_parse_math(False)
    axes.margins(MARGIN_SHARE)
    axes.set_aspect("equal", adjustable="datalim")
    canvas.frame(axes)
    canvas.add_title(figure, f"{words[0]} is to {words[1]} as {words[2]} is to {words[3]}")
    return canvas.write_png(figure, path)
