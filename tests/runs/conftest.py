"""What whole runs of a few seconds share."""

from pathlib import Path

import pytest
from faulty_store import faulty_store


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def store(monkeypatch, tmp_path):
    with faulty_store(monkeypatch, tmp_path / "mirrors") as found:
        yield found
