"""The pieces of the package work in a script without the trainer."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_loop.py"


@pytest.mark.slow
def test_an_own_loop_trains_searches_and_attends(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE)])
    names = runpy.run_path(str(EXAMPLE))
    assert "reversed correctly: 100% of the sequences" in capsys.readouterr().out
    np.testing.assert_allclose(names["weights"].sum(-1), 1, rtol=1e-5)
    assert not np.triu(names["weights"][0, 0], 1).any(), "causal"
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60
