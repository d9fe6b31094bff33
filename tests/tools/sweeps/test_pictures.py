"""The pictures of a study."""

import matplotlib
from optuna.trial import TrialState
from tools.sweeps.studies import GRID

from transformer_jax.tools.sweeps import pictures
from transformer_jax.tools.sweeps.pictures import draw_study
from transformer_jax.tools.sweeps.study import SharedStudy


def settings() -> dict:
    """Everything that decides how other pictures look."""
    return {name: value for name, value in matplotlib.rcParams.items() if not name.startswith("backend")}


def test_pictures_are_drawn_and_those_drawn_later_look_as_they_would(storage, tmp_path):
    study = SharedStudy(GRID, storage, "s")
    for value in (1.0, 2.0, 4.0):
        trial = study.claim()
        study.point(trial)
        study.finish(trial, TrialState.COMPLETE, value, step=1)
    before = settings()
    drawn = draw_study(study, tmp_path)
    assert [file.name for file in drawn] == ["history.png", "parallel_coordinates.png", "importance.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)
    assert settings() == before


def test_equal_values_are_said_to_be_equal(storage, tmp_path, monkeypatch):
    study = SharedStudy(GRID, storage, "s")
    for _ in range(3):
        trial = study.claim()
        study.point(trial)
        study.finish(trial, TrialState.COMPLETE, 2.0, step=1)
    said = []
    monkeypatch.setattr(pictures.canvas, "add_title", lambda figure, text, points: said.append(text))
    assert [file.name for file in draw_study(study, tmp_path)][1:] == ["parallel_coordinates.png", "importance.png"]
    assert said == [f"all values equal: 3 trials have {GRID.metric} = 2"] * 2
