"""The study of modifications: its ideas exist, and its table shows what the duels found."""

import importlib
from pathlib import Path

import pytest

from transformer_jax.tools.duel.contenders import read_contenders


@pytest.fixture
def run(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "experiments/modifications"))
    return importlib.import_module("run")


def test_its_ideas_fit_their_recipes(run):
    for study in run.STUDIES.values():
        stated = [tuple(flag.removeprefix("--config.").split("=", 1)) for flag in study.flags]
        assert len(read_contenders(study.recipe, stated, study.ideas, [1])) == 1 + len(study.ideas)
    assert len(run.STUDIES["transformer"].ideas) >= 20


def test_its_table_has_differences_beside_published_figures(run):
    names = ("mean", "low", "high", "p_holm")
    tested = dict(zip((f"validation/loss {name}" for name in names), (-0.02, -0.03, -0.01, 0.01), strict=True))
    base = {"idea": "base", "failed": 0, **dict.fromkeys(tested)}
    found = {"transformer": {"contenders": [base, {"idea": "rmsnorm", "failed": 1, **tested}]}}
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in run.table(found).splitlines()]
    assert cells[2] == ["base", "base", "26.62", "1.838"]
    assert cells[3] == ["rmsnorm", "-0.020 [-0.030, -0.010]* (1 failed)", "27.14", "1.821"]
