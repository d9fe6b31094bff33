"""The leaderboard of a sweep: its picture, and means over seeds."""

from tools.study.pretended_training import GRID

from transformer_jax.tools.study import runs_table
from transformer_jax.tools.study.runs_table import write_leaderboard
from transformer_jax.tools.study.sweeps import TrialRow


def test_trials_are_drawn_against_each_setting_and_means_over_seeds_have_intervals(tmp_path, monkeypatch):
    drawn, draw = [], runs_table.draw_panels
    monkeypatch.setattr(runs_table, "draw_panels", lambda *given, **of: drawn.append(given[0]) or draw(*given, **of))
    values = (2.0, 1.0, 4.0)
    trials = [TrialRow(n, "complete", value, 1, GRID.points()[n], None, "", "", {}) for n, value in enumerate(values)]
    (_, over_seeds), files = write_leaderboard(GRID, trials, tmp_path)
    assert [file.name for file in files] == ["leaderboard.md", "leaderboard.html", "leaderboard.csv", "settings.png"]
    assert files[-1].read_bytes().startswith(b"\x89PNG")
    (slices,) = drawn
    assert [panel.title for panel in slices] == ["row", "seed"]
    seeds, scores = slices[1].lines["trial"]
    assert sorted(zip(seeds.tolist(), scores.tolist(), strict=True)) == [("3", 2.0), ("3", 4.0), ("4", 1.0)]
    # Of 1 and 2 the interval is 1.5 -+ 12.706 x 0.5, of Student's t with one degree of freedom.
    assert over_seeds.blocks[0].lines[1:] == [["b", "4.00", "1 of 1"], ["a", "1.50 [-4.85, 7.85]", "2 of 2"]]
