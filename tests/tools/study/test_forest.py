"""The picture of differences: the best idea comes first, and only what is beyond chance has a
color."""

import numpy as np
from matplotlib.colors import to_rgba

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.study.duel_report import BETTER, UNCERTAIN, WORSE, Difference, Differences, draw_differences
from transformer_jax.tools.study.seed_statistics import PairedTest


def difference(mean, adjusted):
    return Difference(PairedTest(5, mean, 0.1, mean - 0.2, mean + 0.2, adjusted), adjusted, (mean - 0.1, mean + 0.1))


def test_ideas_are_sorted_by_their_effect_and_colored_by_their_test(tmp_path, monkeypatch):
    drawn, write = [], canvas.write_png
    monkeypatch.setattr(canvas, "write_png", lambda figure, path: drawn.append(figure) or write(figure, path))
    bleu = {"harms": difference(-2.0, 0.01), "maybe": difference(0.5, 0.2), "helps": difference(1.5, 0.03)}
    loss = {"helps": difference(-0.4, 0.01), "maybe": difference(0.1, 0.04)}
    columns = [Differences("BLEU", True, 0.7, bleu), Differences("loss", False, None, loss)]
    draw_differences(columns, tmp_path / "forest.png")
    left, right = drawn[0].axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["helps", "maybe", "harms"]

    def colors(axes):
        marks = [line for line in axes.lines if line.get_marker() == "D"]
        return {int(np.asarray(mark.get_ydata())[0]): to_rgba(mark.get_color()) for mark in marks}

    assert colors(left) == {0: to_rgba(BETTER), 1: to_rgba(UNCERTAIN), 2: to_rgba(WORSE)}
    assert colors(right) == {0: to_rgba(BETTER), 1: to_rgba(WORSE)}
