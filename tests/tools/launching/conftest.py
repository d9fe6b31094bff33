"""Programs of a cluster that are not here: shell scripts first on the PATH, which note what they
were asked."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

# A run: notes its arguments and its environment, and on SIGTERM that it saved. Without `forever` it
# ends at once.
TRAINING = """
printf '%s\\0' "$@" > "$NOTES/arguments-${SLURM_PROCID-0}"
env > "$NOTES/environment-${SLURM_PROCID-0}"
if [ "$BEHAVIOR" = fails ]; then exit 1; fi
if [ "$BEHAVIOR" = lost ]; then exit 75; fi
if [ "$BEHAVIOR" = forever ]; then
    trap 'kill $!; sleep 0.3; echo saved >> "$NOTES/saved"; exit 0' TERM
    touch "$NOTES/ready-${SLURM_PROCID-0}"
    sleep 60 & wait
fi
"""


@pytest.fixture
def notes(tmp_path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def program(tmp_path, notes, monkeypatch) -> Callable[[str, str], None]:
    """``program(name, text)`` puts a shell script on the PATH; ``transformer-jax`` is there
    already."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(notes))

    def put(name: str, text: str) -> None:
        file = folder / name
        file.write_text(f"#!/bin/bash\n{text}")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    put("transformer-jax", TRAINING)
    return put
