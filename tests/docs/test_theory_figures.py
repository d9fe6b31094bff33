"""The script of the figures of theory draws each of them, with numbers that verify it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "recipe", "printed"),
    [
        ("positions", "quickstart", r"form: \S+e-1[3-9]\n.*, fitted: \S+e-0[6-9]\n.*, later: \S+e[-+]0[0-4]\n"),
        ("scaling", "", r"\n +64 +6\d\.\d\d +(0\.9|1\.0)\d "),
        ("masks", "quickstart", r"padded +decoder, causal +28 of +144 pairs may attend\n"),
        ("smoothing", "quickstart", r"target 0\.9125 .*0\.0125 .*\n.*probability 0\.91\d\d .* = 0\.9125\n"),
    ],
)
def test_each_figure_is_drawn_with_its_numbers(monkeypatch, tmp_path, capsys, name, recipe, printed):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import theory_figures

    file = tmp_path / "figure.png"
    theory_figures.main([name, f"--config={recipe}", f"--output={file}"])
    assert re.search(printed, capsys.readouterr().out)
    assert file.read_bytes()[:4] == b"\x89PNG"
