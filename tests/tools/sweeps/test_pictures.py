"""The pictures of a study."""

import numpy as np
from tools.sweeps.studies import GRID

from transformer_jax.tools.pictures import panels
from transformer_jax.tools.sweeps import pictures
from transformer_jax.tools.sweeps.study import TrialRow


def rows(*values: float) -> list[TrialRow]:
    return [
        TrialRow(number, "complete", value, 1, point, None, "", "", {})
        for number, (value, point) in enumerate(zip(values, GRID.points(), strict=False))
    ]


def test_each_trial_is_drawn_in_order_and_against_each_setting_that_varies(tmp_path, monkeypatch):
    drawn = []

    def draw(panels_of_picture, path, **options):
        drawn.append(panels_of_picture)
        return panels.draw_panels(panels_of_picture, path, **options)

    monkeypatch.setattr(pictures, "draw_panels", draw)
    trials = rows(2.0, 1.0, 4.0)
    files = pictures.draw_study(GRID, trials, tmp_path)
    assert [file.name for file in files] == ["history.png", "settings.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    (history,), slices = drawn
    np.testing.assert_array_equal(history.lines["trial"], [[0, 1, 2], [2.0, 1.0, 4.0]])
    best = [2, 2, 1, 1, 1] if GRID.direction == "minimize" else [2, 2, 2, 2, 4]
    np.testing.assert_array_equal(history.lines["best so far"], [[0, 1, 1, 2, 2], best])
    for panel in slices:
        name, _, importance = panel.title.partition(": importance ")
        assert 0 <= float(importance) <= 1
        points = sorted((each.point[name], each.value) for each in trials)
        values, scores = panel.lines["_"]
        assert list(zip(values, scores, strict=True)) == [(str(value), score) for value, score in points]
