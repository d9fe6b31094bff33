"""Metrics on disk, one JSON object a line, and in the trackers of the run."""

import json
import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.runs.trackers import Tracker
from transformer_jax.runtime.atomic_files import read_records, write_whole


class LogContents(NamedTuple):
    """The lines of a log, and their SHA-256; empty where an earlier version wrote none."""

    num_records: int = 0
    digest: str = ""

    def change_since(self, before: "LogContents") -> str:
        """What happened to the log since ``before``, empty for nothing."""
        if self.num_records < before.num_records:
            return f"records were lost: {self.num_records} left of {before.num_records}"
        return "records were changed since they were written" if before.digest not in ("", self.digest) else ""


class MetricsLog:
    """Appends to ``metrics.jsonl`` and to ``trackers``.

    ``contents`` counts its lines, with a digest of them.

    Opened at ``step`` it first takes out the lines that a killed run had written beyond it, or beyond ``most`` lines, so that a
    resumed run leaves the file that an uninterrupted one would have left.
    """

    def __init__(self, path: Path, step: int, trackers: Sequence[Tracker] = (), most: int | None = None) -> None:
        kept = _cut_after(path, step, most)
        self._num_records, self._sum = len(kept), sha256("".join(kept).encode())
        self._file = path.open("a", encoding="utf-8")
        self._trackers = trackers

    @property
    def contents(self) -> LogContents:
        """What a checkpoint remembers of the log, to know whether it is still the same."""
        return LogContents(self._num_records, self._sum.hexdigest())

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Records ``metrics`` measured after ``step`` updates; a number that is not finite becomes null."""
        clean = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        line = _line({"step": step, **clean})
        self._file.write(line)
        self._num_records += 1
        self._sum.update(line.encode())
        self._file.flush()
        for tracker in self._trackers:
            tracker.write(step, metrics)

    def sync(self) -> None:
        """Returns when everything written is on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        for tracker in self._trackers:
            tracker.sync()

    def close(self) -> None:
        """Nothing is written after this; what cannot be closed, as on a full disk, keeps no other from it."""
        with ExitStack() as stack:
            for tracker in self._trackers:
                stack.callback(tracker.close)
            stack.callback(self._file.close)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a ``metrics.jsonl``, none where there is no such file yet; raises DataError when it is damaged."""
    return read_records(path) if path.is_file() else []


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"


def _cut_after(path: Path, step: int, most: int | None) -> list[str]:
    """The lines that are left."""
    kept = [_line(record) for record in read_metrics(path) if record["step"] <= step][:most]
    write_whole(path, "".join(kept))
    return kept
