"""Text and lines of every picture contrast with their background."""

import pytest
from matplotlib.colors import to_rgb

from transformer_jax.tools.pictures import canvas


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colors, from 1 to 21 (WCAG 2.2, relative luminance)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color))
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_texts_and_lines_have_the_contrast_of_wcag_on_white():
    assert contrast("white", "black") == pytest.approx(21)
    # The known example that just fails.
    assert contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)
    assert min(contrast(color, "white") for color in (canvas.INK, canvas.FAINT_INK)) >= 4.5
    assert min(contrast(color, "white") for color in (*canvas.LINE_COLORS, canvas.MARK)) >= 3
