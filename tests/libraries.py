"""Libraries that only some tests need: imported when first used, since every worker reads every file of tests."""

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import pytest


def library(name: str, extra: str = "") -> Any:
    """The module ``name``; where it is not installed, the file of tests that asks is skipped."""
    if importlib.util.find_spec(name) is None:
        where = f": pip install transformer_jax[{extra}]" if extra else ""
        pytest.skip(f"{name} is not installed{where}", allow_module_level=True)
    return _Library(name)


class _Library(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
