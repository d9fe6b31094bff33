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
