"""Size and time of files, by name: whether one was written to since, also by an earlier process."""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from transformer_jax.config.json_text import parse_json
from transformer_jax.runtime.atomic_files import write_whole


class Described(NamedTuple):
    """What differs once a file was written to: size in bytes, and time of change in nanoseconds."""

    size: int
    time: int


def describe(file: Path) -> Described | None:
    """The description of a file; None where there is none, or a link."""
    try:
        found = file.lstat()
    except OSError:
        return None
    return Described(found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def load_described(record: Path) -> dict[str, Described]:
    """Descriptions by name, as ``save_described`` wrote them; none where that is missing or damaged."""
    try:
        found = parse_json(record.read_bytes())
        return {str(name): Described(int(size), int(time)) for name, (size, time) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save_described(record: Path, described: Mapping[str, Described]) -> None:
    """Writes descriptions."""
    write_whole(record, json.dumps(described))
