"""The pictures of a study."""

import matplotlib
import numpy as np
from tools.sweeps.studies import GRID

from transformer_jax.tools.sweeps.pictures import draw_study
from transformer_jax.tools.sweeps.study import TrialRow


def rows(*values: float) -> list[TrialRow]:
    return [
        TrialRow(number, "complete", value, 1, point, None, "", "", {})
        for number, (value, point) in enumerate(zip(values, GRID.points(), strict=False))
    ]


def settings() -> dict:
    """Everything that decides how other pictures look."""
    return {name: value for name, value in matplotlib.rcParams.items() if not name.startswith("backend")}


def test_pictures_are_drawn_and_change_no_others(tmp_path):
    before = settings()
    drawn = draw_study(GRID, rows(2.0, 1.0, 4.0), tmp_path)
    assert [file.name for file in drawn] == ["history.png", "parallel_coordinates.png", "importance.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)
    assert settings() == before
    # The line of the worst trial is not white: yellow, which is the end of the colors, is in the picture.
    pixels = matplotlib.image.imread(drawn[1])[:, :600, :3]
    assert (np.abs(pixels - matplotlib.colormaps["viridis"](1.0)[:3]).max(-1) < 0.05).any()
