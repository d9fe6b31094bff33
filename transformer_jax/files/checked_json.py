"""JSON objects, and logs of them, with a CRC-32 that reveals a changed digit."""

import errno
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.errors import DataError, StoreError
from transformer_jax.files.json_text import finite_or_none, is_count, parse_json
from transformer_jax.files.paths import in_store

CRC = "crc32"
"""The key of the CRC-32, eight hexadecimal digits. Files of version 0.1 have none."""


def with_crc(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``content`` with its CRC-32 as the last key."""
    return {**content, CRC: _crc_of(content)}


def without_crc(content: Any) -> dict[str, Any]:
    """Return ``content`` without its CRC-32. Raises ValueError if it is no object, or changed."""
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    if not is_unchanged(content):
        raise ValueError("changed since it was written: its crc32 does not match")
    return _without(content)


def is_unchanged(content: Mapping[str, Any]) -> bool:
    """Return whether the content matches its CRC-32, or has none."""
    return CRC not in content or content[CRC] == _crc_of(_without(content))


class CheckedLog(NamedTuple):
    """The sound records of a log, and sentences about damaged lines or an unreadable file."""

    records: list[dict[str, Any]]
    problems: list[str]


def read_regular(path: Path) -> bytes:
    """Return the content of a file. Raises OSError, also for a pipe or a device."""
    if not in_store(path) and path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file")
    return path.read_bytes()


def read_checked(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file without its CRC-32, or None. Raises DataError."""
    try:
        return without_crc(parse_json(read_regular(path)))
    except FileNotFoundError:
        return None
    except StoreError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: damaged ({getattr(error, 'strerror', None) or error})") from None


def read_log(path: Path) -> CheckedLog:
    """Return the records of a log, without an unfinished last line. Raises DataError."""
    try:
        lines = read_regular(path).split(b"\n")
    except (FileNotFoundError, IsADirectoryError):
        raise DataError(f"{path}: no such file; it should have a record of metrics on each line") from None
    except StoreError:
        raise
    except OSError as error:
        return CheckedLog([], [f"{path}: cannot be read: {error.strerror or error}"])
    log = CheckedLog([], [])
    for number, line in enumerate(lines[:-1], start=1):
        try:
            log.records.extend([_record(line)] if line.strip() else [])
        except ValueError as error:
            log.problems.append(f"{path}, line {number}: not a record of metrics ({error}); remove the line to resume")
    return log


def _record(line: bytes) -> dict[str, Any]:
    record = without_crc(parse_json(line))
    if not is_count(record.get("step")):
        raise ValueError("no step")
    return {name: finite_or_none(value) if name != "step" else value for name, value in record.items()}


def _without(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != CRC}


def _crc_of(content: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content).encode()):08x}"
