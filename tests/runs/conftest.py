"""What whole runs of a few seconds share."""

from pathlib import Path

import pytest
from compiled_programs import compiled_once


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def programs(cache):
    """These tests compile the same few programs again and again; the processes that are killed share nothing."""
    with compiled_once(cache / "compiled", in_processes=False):
        yield
