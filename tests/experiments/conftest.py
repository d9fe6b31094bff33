"""Scripts of experiments as modules."""

import importlib
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@pytest.fixture
def script(monkeypatch):
    """Imports a module of folders of experiments, which is looked for in the first of them
    first."""

    def load(module: str, *folders: str):
        for folder in reversed(folders):
            monkeypatch.syspath_prepend(str(EXPERIMENTS / folder))
        return importlib.import_module(module)

    return load


@pytest.fixture(autouse=True)
def forget_the_scripts():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(EXPERIMENTS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
