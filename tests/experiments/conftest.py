"""Scripts of experiments as modules."""

import importlib
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@pytest.fixture
def benchmark_module(monkeypatch):
    for folder in ("benchmarks", "roofline"):
        monkeypatch.syspath_prepend(str(EXPERIMENTS / folder))
    return importlib.import_module


@pytest.fixture
def faults(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS / "faults"))
    return importlib.import_module


@pytest.fixture(autouse=True)
def forget_the_scripts():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(EXPERIMENTS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
