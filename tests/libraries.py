"""Libraries that only some tests need: imported when first used, since every worker reads every
file of tests."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from transformer_jax.registry.index import own_indexes

TOOLS = {index.tool for index in own_indexes() if index.tool}
with_all_tools = pytest.mark.skipif(
    not {folder.name for folder in (Path(__file__).parent / "tools").iterdir() if folder.is_dir()} - {"__pycache__"}
    <= TOOLS,
    reason="a tool is absent",
)
"""Marks a test of the core that is about the parts of all tools too."""


def library(name: str, extra: str = "") -> Any:
    """The module ``name``; where it is not installed, the file of tests that asks is skipped."""
    if importlib.util.find_spec(name) is None:
        where = f": pip install transformer_jax[{extra}]" if extra else ""
        pytest.skip(f"{name} is not installed{where}", allow_module_level=True)
    return _Library(name)


class _Library(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
