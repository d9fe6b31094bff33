"""Text, lines and cells of every picture contrast with their background."""

import numpy as np
import pytest

from transformer_jax.tools.pictures.canvas import (
    FAINT_INK,
    INK,
    LINE_COLORS,
    MARK,
    SEQUENTIAL,
    SIGNED,
    blank_figure,
    contrast,
    write_in_cells,
)
from transformer_jax.tools.pictures.panels import MatrixPanel


def test_texts_and_lines_have_the_contrast_of_wcag_on_white():
    assert contrast("white", "black") == pytest.approx(21)
    assert contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)  # The known example that just fails.
    assert min(contrast(color, "white") for color in (INK, FAINT_INK)) >= 4.5
    assert min(contrast(color, "white") for color in (*LINE_COLORS, MARK)) >= 3


@pytest.mark.parametrize("colors", [SEQUENTIAL, SIGNED])
def test_numbers_in_cells_have_the_contrast_of_wcag_on_every_color(colors):
    axes = blank_figure(1, 1).add_subplot()
    axes.imshow(np.linspace(0, 1, 64)[None], cmap=colors, vmin=0, vmax=1)
    write_in_cells(axes, [["0"] * 64], points=6)
    cells = colors(np.linspace(0, 1, 64))
    assert min(contrast(text.get_color(), tuple(cell)) for text, cell in zip(axes.texts, cells, strict=True)) >= 4.5


def test_a_small_negative_number_is_no_negative_zero():
    axes = blank_figure(1, 1).add_subplot()
    MatrixPanel("", np.array([[-0.04, -0.06]]), is_signed=True, numbers=".1f").draw(axes)
    assert [text.get_text() for text in axes.texts] == ["0.0", "-0.1"]
