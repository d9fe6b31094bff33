"""Attention weights as a grid of heat maps with a row per layer and a column per head."""

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.data.tokenizers.tokenizer_interface import SPACE_SIGN
from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import FAINT_INK, HAIRLINE, INK, MARK, SEQUENTIAL, font

SPACE_MARK = "\N{OPEN BOX}"
MEAN = "mean of heads"
# With more, on either side, the picture of all heads would be wider than a screen.
MOST_TOKENS = 25

PANEL_INCHES = 1.9
MIN_CELL_INCHES = 0.125
MAX_CELL_INCHES = 0.34
# Inches between panels.
GAP = 0.14
POINTS_PER_INCH = 72
TITLE_POINTS = 12
NOTE_POINTS = 8.5
# Width of a Chinese letter, in Latin ones.
WIDE_LETTER = 1.65


def draw_attention(
    weights: Mapping[str, np.ndarray],
    row_pieces: Sequence[str],
    column_pieces: Sequence[str],
    path: str | Path,
    *,
    title: str = "",
    hint: str = "",
) -> Path:
    """Draw attention weights as PNG, PDF or SVG, as ``path`` ends, and return the path.

    As in figures 3-5 of Vaswani et al. 2017 and figure 3 of Bahdanau et al. 2015. All panels share
    one color scale from 0 to 1, or, with negative weights, of two colors from -1 or less to 1 or
    more. With several heads the last column is their mean, and the sharpest head has a frame. With
    more than 25 tokens on a side, only that head and the mean of its layer are drawn.

    Args:
        weights: Arrays ``[H, Q, M]``, by layer from top to bottom.
        row_pieces: The ``Q`` querying tokens (target), on the left.
        column_pieces: The ``M`` attended tokens (source), below.
        path: The file.
        title: A heading.
        hint: The end of the note on the sharpest head.

    Raises:
        ValueError: Weights and pieces do not fit.
    """
    rows, columns = ([visible_piece(piece) for piece in side] for side in (row_pieces, column_pieces))
    weights = {name: np.asarray(layer, np.float32) for name, layer in weights.items()}
    for name, layer in weights.items():
        if layer.ndim != 3 or layer.shape[1:] != (len(rows), len(columns)):
            problem = f"{len(rows)} row_pieces and {len(columns)} column_pieces do not fit weights {name!r}"
            raise ValueError(f"{problem} of shape {layer.shape}, expected [H, Q, M]")
    panels, focused = {name: _panels(layer) for name, layer in weights.items()}, sharpest(weights)
    if focused and max(len(rows), len(columns)) > MOST_TOKENS:
        panels = {focused.layer: [panels[focused.layer][index] for index in (focused.head - 1, -1)]}

    # In inches. A large grid is viewed at a smaller scale, so headings grow with it. Labels grow
    # with the cells.
    num_columns = max(map(len, panels.values()))
    is_signed = any((layer < 0).any() for layer in weights.values())
    largest = max(1.0, *(float(np.abs(layer).max(initial=0.0)) for layer in weights.values())) if is_signed else 1.0
    lowest, colors = (-largest, canvas.DIVERGING) if is_signed else (0.0, SEQUENTIAL)
    wanted = PANEL_INCHES * (2.4 if num_columns * len(panels) == 1 else 1.0)
    cell = min(max(wanted / max(len(rows), len(columns)), MIN_CELL_INCHES), MAX_CELL_INCHES)
    label_points = min(max(cell * POINTS_PER_INCH * 0.72, 5.5), 9.5)
    letter = label_points * 0.62 / POINTS_PER_INCH
    left_labels, bottom_labels = (letter * max(map(_letters, side)) for side in (rows, columns))
    panel_width, panel_height = cell * len(columns), cell * len(rows)
    scale = min(max(num_columns * panel_width / 12, 1.0), 2.0)
    left = left_labels + 0.2 + 0.3 * scale
    right = 0.55 + 0.3 * scale
    width = left + num_columns * (panel_width + GAP) - GAP + right
    letters = max(int(width / (TITLE_POINTS * scale * 0.68 / POINTS_PER_INCH)), 20)
    title = "\n".join(part for line in title.splitlines() for part in textwrap.wrap(line, letters))
    above = 0.42 + 0.2 * max(title.count("\n") - 1, 0) if title else 0.0
    top = scale * (above + (0.36 if num_columns > 1 else 0.16))
    note = []
    if focused:
        count = sum(len(layer) for layer in weights.values() if len(layer) > 1)
        words = (
            f"Framed: {focused.layer}, head {focused.head}, the sharpest of {count}: the largest weights of its rows and "
            f"columns are {focused.sharpness:.2f} on average. {hint}"
        )
        note = textwrap.wrap(words, int((width - left) / (NOTE_POINTS * scale * 0.6 / POINTS_PER_INCH)))
    below_panels = bottom_labels + 0.22 + 0.19 * scale * len(note)
    height = top + len(panels) * (panel_height + GAP) - GAP + below_panels

    figure = canvas.blank_figure(width, height)
    for row, name in enumerate(panels):
        row_top = top + row * (panel_height + GAP)
        for column, (heading, matrix) in enumerate(panels[name]):
            axes = canvas.add_panel(figure, left + column * (panel_width + GAP), row_top, panel_width, panel_height)
            axes.imshow(matrix, cmap=colors, vmin=lowest, vmax=largest, aspect="auto", interpolation="nearest")
            axes.tick_params(length=0, pad=2.5)
            canvas.frame(axes, linewidth=0.6)
            if focused and heading == f"head {focused.head}" and name == focused.layer:
                for spine in axes.spines.values():
                    spine.set(color=MARK, linewidth=2.2 * scale, zorder=3)
            below = columns if row == len(panels) - 1 else []
            canvas.name_cells(axes, [] if column else rows, below, label_points)
            if row == 0 and heading:
                color, weight = (INK, "bold") if heading == MEAN else (FAINT_INK, "normal")
                axes.set_title(heading, fontproperties=font(NOTE_POINTS * scale, weight=weight), color=color, pad=5)
        x, y = 0.22 * scale / width, 1 - (row_top + panel_height / 2) / height
        text = figure.text(x, y, name, rotation=90, ha="center", va="center", color=FAINT_INK, parse_math=False)
        text.set_fontproperties(font(NOTE_POINTS * scale))
    written = "token" if list(row_pieces) == list(column_pieces) else "written"
    for word, x, y, alignment in (
        (f"{written} \N{DOWNWARDS ARROW}", left - 0.06, height - top + 0.05, "right"),
        ("read \N{RIGHTWARDS ARROW}", left - 0.06, below_panels - 0.15, "right"),
    ):
        text = figure.text(x / width, y / height, word, ha=alignment, color=FAINT_INK)
        text.set_fontproperties(font(label_points))
    if note:
        text = figure.text(left / width, 0.09 / height, "\n".join(note), color=FAINT_INK, parse_math=False)
        text.set_fontproperties(font(NOTE_POINTS * scale))
    if title:
        canvas.add_title(figure, title, points=TITLE_POINTS * scale)
    # The color scale, beside the first row of panels.
    axes = canvas.add_panel(figure, width - right + 0.18, top, 0.1 * scale, min(panel_height, 1.6 * scale))
    ramp = np.linspace(largest, lowest, 256)[:, None]
    axes.imshow(ramp, cmap=colors, vmin=lowest, vmax=largest, aspect="auto", extent=(0, 1, 0, 1))
    canvas.frame(axes, linewidth=0.6)
    axes.yaxis.tick_right()
    marks = [f"{mark:.2g}" for mark in np.linspace(lowest, largest, 3)]
    axes.set_yticks([0.0, 0.5, 1.0], labels=marks, fontproperties=font(7.5 * scale), color=FAINT_INK)
    axes.tick_params(length=2, width=0.6, color=HAIRLINE, pad=2)
    return canvas.write_png(figure, path)


class SharpestHead(NamedTuple):
    """A head, from 1, and the mean of the largest weight of every row and of every column."""

    layer: str
    head: int
    sharpness: float


def sharpest(layers: Mapping[str, np.ndarray]) -> SharpestHead | None:
    """Return the sharpest head of layers with several heads, or None without such a layer.

    Columns count too, so that a head is not sharp if all its rows look at one token, such as EOS.
    """
    heads = [
        SharpestHead(name, head, float(np.mean([*weights.max(axis=-1), *weights.max(axis=-2)])))
        for name, layer in layers.items()
        for head, weights in enumerate(layer if len(layer) > 1 else (), start=1)
    ]
    return max(heads, key=lambda head: head.sharpness, default=None)


def visible_piece(piece: str) -> str:
    """Return a token for an axis: spaces as open boxes, unprintable characters escaped."""
    shown = piece.replace(SPACE_SIGN, SPACE_MARK).replace(" ", SPACE_MARK)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in shown)


def _panels(layer: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the heading and the matrix of each panel in a row."""
    if len(layer) == 1:
        return [("", layer[0])]
    return [*((f"head {head}", matrix) for head, matrix in enumerate(layer, start=1)), (MEAN, layer.mean(axis=0))]


def _letters(piece: str) -> float:
    """Return the width of a piece in Latin letters."""
    return sum(WIDE_LETTER if unicodedata.east_asian_width(letter) in "WF" else 1.0 for letter in piece)
