"""The pictures of a study."""

import numpy as np
import optuna
from tools.sweeps.studies import GRID, SEARCH

from transformer_jax.tools.pictures import panels
from transformer_jax.tools.sweeps import leaderboard
from transformer_jax.tools.sweeps.study import TrialRow
from transformer_jax.tools.sweeps.worker import _suggest


def test_each_trial_is_drawn_in_order_and_against_each_setting_that_varies(tmp_path, monkeypatch):
    drawn = []

    def draw(panels_of_picture, path, **options):
        drawn.append(panels_of_picture)
        return panels.draw_panels(panels_of_picture, path, **options)

    monkeypatch.setattr(leaderboard, "draw_panels", draw)
    trials = [
        TrialRow(number, "complete", value, 1, GRID.points()[number], None, "", "", {})
        for number, value in enumerate((2.0, 1.0, 4.0))
    ]
    files = leaderboard.draw_study(optuna.create_study(), GRID, trials, tmp_path)
    assert [file.name for file in files] == ["history.png", "settings.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    leaderboard.write_leaderboard(GRID, trials, files, tmp_path)
    assert "Grids have no importance of settings" in (tmp_path / "leaderboard.md").read_text()
    (history,), slices = drawn
    np.testing.assert_array_equal(history.lines["trial"], [[0, 1, 2], [2.0, 1.0, 4.0]])
    best = [2, 2, 1, 1, 1] if GRID.direction == "minimize" else [2, 2, 2, 2, 4]
    np.testing.assert_array_equal(history.lines["best so far"], [[0, 1, 1, 2, 2], best])
    for panel in slices:
        points = sorted((each.point[panel.title], each.value) for each in trials)
        values, scores = panel.lines["_"]
        assert list(zip(values, scores, strict=True)) == [(str(value), score) for value, score in points]


def test_a_search_orders_its_settings_by_importance():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: sum(_suggest(trial, *each) for each in SEARCH.space.items()), n_trials=20)
    assert next(iter(leaderboard.importances(study, list(SEARCH.space)))) == "model.num_encoder_layers"
    assert leaderboard.importances(optuna.create_study(), list(SEARCH.space)) == {}
