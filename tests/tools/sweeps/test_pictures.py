"""The pictures of a study."""

import numpy as np
import optuna
from tools.sweeps.studies import GRID, SEARCH

from transformer_jax.tools.sweeps import leaderboard
from transformer_jax.tools.sweeps.study import TrialRow
from transformer_jax.tools.sweeps.worker import _suggest


def test_each_trial_is_drawn_in_order_and_against_each_setting_that_varies(tmp_path, monkeypatch):
    drawn, draw = [], leaderboard.draw_panels
    monkeypatch.setattr(leaderboard, "draw_panels", lambda *given, **of: drawn.append(given[0]) or draw(*given, **of))
    values = (2.0, 1.0, 4.0)
    trials = [TrialRow(n, "complete", value, 1, GRID.points()[n], None, "", "", {}) for n, value in enumerate(values)]
    files = leaderboard.draw_study(optuna.create_study(), GRID, trials, tmp_path)
    assert [file.name for file in files] == ["history.png", "settings.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    leaderboard.write_leaderboard(GRID, trials, files, tmp_path)
    assert "Grids have no importance of settings" in (tmp_path / "leaderboard.md").read_text()
    (history,), slices = drawn
    np.testing.assert_array_equal(history.lines["best so far"], [[0, 1, 1, 2, 2], [2, 2, 2, 2, 4]])
    assert [panel.title for panel in slices] == ["row", "seed"]
    seeds, scores = slices[1].lines["trial"]
    assert (seeds.tolist(), scores.tolist()) == (["3", "3", "4"], [2.0, 4.0, 1.0])


def test_a_search_orders_its_settings_by_importance():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: sum(_suggest(trial, *each) for each in SEARCH.space.items()), n_trials=20)
    assert next(iter(leaderboard.importances(study, list(SEARCH.space)))) == "model.num_encoder_layers"
    assert leaderboard.importances(optuna.create_study(), list(SEARCH.space)) == {}
