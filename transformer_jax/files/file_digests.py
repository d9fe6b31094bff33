"""Digests of the files of a folder, which reveal damage such as a flipped bit.

CRC-32 (ISO 3309) finds every error burst of up to 32 bits; it does not protect against someone who
edits a file and its digests. zlib computes it at several GB/s a core and releases the interpreter's
lock.
"""

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.json_text import parse_json

DIGESTS = "digests.json"
SEGMENT_BYTES = 1 << 22
# A read fits into the cache of a core.
_READ_BYTES = 1 << 18
_THREADS = min(8, os.cpu_count() or 1)
# Orbax writes them after the digests; nothing in them is restored.
_WRITTEN_LATER = (DIGESTS, "_CHECKPOINT_METADATA", "commit_success.txt")


class Part(NamedTuple):
    """Part ``number`` of ``parts`` of the segments, which one of several processes checks."""

    number: int = 0
    parts: int = 1


WHOLE = Part()


class _Segment(NamedTuple):
    name: str
    number: int


def write_digests(folder: Path) -> None:
    """Write ``digests.json``: by file, relative to ``folder``, the CRC-32 of each 4 MiB.

    Digests of a folder inside ``folder`` are moved into it, and the files there are not read again.
    """
    digested: dict[str, list[int]] = {}
    for file in list(folder.glob(f"*/**/{DIGESTS}")):
        inner = file.parent.relative_to(folder).as_posix()
        digested |= {f"{inner}/{name}": crcs for name, crcs in (_recorded(file.parent) or {}).items()}
        file.unlink()
    names = list(_files(folder))
    digests = {name: digested.get(name, []) for name in names}
    segments = list(_segments(folder, (name for name in names if name not in digested)))
    for segment, crc in zip(segments, _crcs(folder, segments), strict=True):
        digests[segment.name].append(crc)
    write_whole(folder / DIGESTS, json.dumps(digests))


def has_digests(folder: Path) -> bool:
    """Return whether the folder has digests. Folders of version 0.1 have none."""
    return (folder / DIGESTS).is_file()


def changed_files(folder: Path, prefixes: Iterable[str] | None = None, part: Part = WHOLE) -> list[str]:
    """Return files that were removed, added or changed since the digests were written.

    ``prefixes``: files or folders to check; default: all. Opens only files in the folder, never a
    name from the digests. Without digests the result is empty.
    """
    if not has_digests(folder):
        return []
    recorded = _recorded(folder)
    if recorded is None:
        return [DIGESTS]
    wanted = None if prefixes is None else tuple(f"{prefix}/" for prefix in prefixes)
    names = {name for name in recorded if wanted is None or f"{name}/".startswith(wanted)}
    existing = set(_files(folder, prefixes))
    present = names & existing
    segments = list(_segments(folder, sorted(present)))
    sizes = dict.fromkeys(present, 0) | {segment.name: segment.number + 1 for segment in segments}
    changed = {name for name in present if sizes[name] != len(recorded[name])}
    checked = [segment for segment in segments[part.number :: part.parts] if segment.name not in changed]
    crcs = _crcs(folder, checked)
    changed |= {name for (name, number), crc in zip(checked, crcs, strict=True) if recorded[name][number] != crc}
    added = {name for name in existing - names if Path(name).name not in _WRITTEN_LATER}
    return sorted(changed | (names - present) | added)


def _recorded(folder: Path) -> dict[str, list[int]] | None:
    """Return the digests by file, None if they are damaged."""
    try:
        recorded = parse_json((folder / DIGESTS).read_text(encoding="utf-8"))
    except ValueError:
        return None
    is_sound = isinstance(recorded, dict) and all(isinstance(crcs, list) for crcs in recorded.values())
    return recorded if is_sound and recorded else None


def _files(folder: Path, prefixes: Iterable[str] | None = None) -> Iterator[str]:
    """Yield relative names of files, without unfinished ones and those that Orbax writes later."""
    roots = [folder] if prefixes is None else [folder / prefix for prefix in prefixes]
    for file in sorted(file for root in roots for file in ([root] if root.is_file() else root.rglob("*"))):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and name not in _WRITTEN_LATER and file.suffix != ".partial":
            yield name


def _segments(folder: Path, names: Iterable[str]) -> Iterator[_Segment]:
    for name in names:
        yield from (_Segment(name, start) for start in range(-(-(folder / name).stat().st_size // SEGMENT_BYTES)))


def _crcs(folder: Path, segments: list[_Segment]) -> list[int]:
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda segment: _crc(folder / segment.name, segment.number), segments))


def _crc(path: Path, number: int) -> int:
    crc, left = 0, SEGMENT_BYTES
    buffer = bytearray(_READ_BYTES)
    with path.open("rb", buffering=0) as file:
        file.seek(number * SEGMENT_BYTES)
        # A read may be short.
        while left and (size := file.readinto(memoryview(buffer)[:left])):
            crc = zlib.crc32(memoryview(buffer)[:size], crc)
            left -= size
    return crc
