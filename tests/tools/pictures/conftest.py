import pytest

from transformer_jax.tools.pictures import canvas


@pytest.fixture
def figures(monkeypatch):
    """The figures that a test draws, for looking at their texts."""
    drawn, write = [], canvas.write_png
    monkeypatch.setattr(canvas, "write_png", lambda figure, path: drawn.append(figure) or write(figure, path))
    return drawn
