"""Metrics on disk, one JSON object a line, and in the trackers of the run."""

import json
import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from transformer_jax.runs.trackers import Tracker
from transformer_jax.runtime.atomic_files import read_records, write_whole


class MetricsLog:
    """Appends to ``metrics.jsonl`` and to ``trackers``.

    ``num_records`` counts its lines.

    Opened at ``step`` it first takes out the lines that a killed run had written beyond it, or beyond ``most`` lines, so that a
    resumed run leaves the file that an uninterrupted one would have left.
    """

    def __init__(self, path: Path, step: int, trackers: Sequence[Tracker] = (), most: int | None = None) -> None:
        self.num_records = _cut_after(path, step, most)
        self._file = path.open("a", encoding="utf-8")
        self._trackers = trackers

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Records ``metrics`` measured after ``step`` updates; a number that is not finite becomes null."""
        clean = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **clean}) + "\n")
        self.num_records += 1
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


def _cut_after(path: Path, step: int, most: int | None) -> int:
    """The number of records left."""
    kept = [record for record in read_metrics(path) if record["step"] <= step][:most]
    write_whole(path, "".join(json.dumps(record) + "\n" for record in kept))
    return len(kept)
