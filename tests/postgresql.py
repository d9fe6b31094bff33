"""A PostgreSQL server of the tests' own: that of the fault campaign."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FAULTS = Path(__file__).resolve().parents[1] / "experiments" / "faults"


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Its address, while it runs; the test is skipped where there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FAULTS))
        found = importlib.import_module("database_server")
        sys.modules.pop(found.__name__)
    if found.missing():
        pytest.skip(found.missing())
    with found.DatabaseServer() as server:
        yield server.address
