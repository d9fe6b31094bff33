"""A matrix of numbers as colored cells, with the names of its rows and columns: counts, weights, co-occurrences."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from transformer_jax.config.errors import DataError
from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import HAIRLINE, INK, font

MOST_CELLS = 120
"""Rows, or columns: beyond that no name could be read."""
COLORS = LinearSegmentedColormap.from_list("counts", ["#ffffff", "#9ecae1", "#1b5a8a", "#0b2a47"])
CELL_INCHES, LETTER_INCHES = 0.32, 0.078
LABEL_POINTS, NUMBER_POINTS = 8.5, 7.0


def draw_heat_map(
    matrix: np.ndarray, path: str | Path, *, rows: Sequence[str], columns: Sequence[str], title: str = ""
) -> Path:
    """Draws ``[R, C]``, every value at least 0, as a PNG, and returns its path; values above 0 are written into their cells.

    Raises DataError for more than 120 rows or columns, ValueError where names do not fit the shape.
    """
    require_drawable(matrix.shape, "heat map")
    if matrix.shape != (len(rows), len(columns)):
        raise ValueError(f"{len(rows)} rows and {len(columns)} columns do not name a matrix {matrix.shape}")
    texts = [[_number(value) for value in row] for row in matrix]
    longest = max((len(text) for row in texts for text in row), default=1)
    cell = max(CELL_INCHES, longest * NUMBER_POINTS * 0.65 / 72 + 0.1)
    left = 0.25 + LETTER_INCHES * max(map(len, rows))
    bottom = 0.25 + LETTER_INCHES * max(map(len, columns))
    top = 0.15 + 0.35 * bool(title)
    width, height = cell * len(columns), CELL_INCHES * len(rows)
    # A title that is wider than a narrow matrix still fits.
    figure = canvas.blank_figure(max(left + width + 0.2, 0.4 + 0.11 * len(title)), top + height + bottom)
    axes = canvas.add_panel(figure, left, top, width, height)
    highest = float(matrix.max()) or 1.0
    axes.imshow(matrix, cmap=COLORS, vmin=0, vmax=highest, aspect="auto")
    axes.set_yticks(range(len(rows)), labels=list(rows), fontproperties=font(LABEL_POINTS), color=INK)
    axes.set_xticks(
        range(len(columns)), labels=list(columns), fontproperties=font(LABEL_POINTS), color=INK, rotation=90
    )
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    axes.tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
    for row, column in zip(*np.nonzero(matrix), strict=True):
        color = "white" if matrix[row, column] > 0.45 * highest else INK
        text = axes.text(column, row, texts[row][column], ha="center", va="center", color=color)
        text.set_fontproperties(font(NUMBER_POINTS))
    if title:
        canvas.add_title(figure, title)
    return canvas.write_png(figure, path)


def require_drawable(shape: tuple[int, ...], name: str) -> None:
    """Raises DataError, which starts with ``name``, for a matrix with too many rows or columns, or none."""
    if not all(0 < length <= MOST_CELLS for length in shape):
        listed = " x ".join(f"{length:,}" for length in shape)
        raise DataError(f"{name}: the matrix is {listed}; a picture shows 1 to {MOST_CELLS} rows and columns")


def _number(value: float) -> str:
    """``2``, ``0.5``, ``0.33``: short enough for a cell."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
