"""What whole runs of a few seconds share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")
