"""Text, lines and cells of every picture contrast with their background."""

import numpy as np
import pytest

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import contrast


def test_texts_and_lines_have_the_contrast_of_wcag_on_white():
    assert contrast("white", "black") == pytest.approx(21)
    assert contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)  # The known example that just fails.
    assert min(contrast(color, "white") for color in (canvas.INK, canvas.FAINT_INK)) >= 4.5
    assert min(contrast(color, "white") for color in (*canvas.LINE_COLORS, canvas.MARK)) >= 3


@pytest.mark.parametrize("colors", [canvas.SEQUENTIAL, canvas.SIGNED])
def test_numbers_in_cells_have_the_contrast_of_wcag_on_every_color(colors):
    axes, values = canvas.blank_figure(1, 1).add_subplot(), np.linspace(0, 1, 64)
    axes.imshow(values[None], cmap=colors, vmin=0, vmax=1)
    canvas.write_in_cells(axes, [["0"] * 64], points=6)
    pairs = zip(axes.texts, colors(values), strict=True)
    assert min(contrast(text.get_color(), tuple(cell)) for text, cell in pairs) >= 4.5
