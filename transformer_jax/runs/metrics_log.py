"""``metrics.jsonl``: the metrics of a run, one JSON object a line."""

import json
import math
import os
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.runtime.atomic_files import read_records, write_whole


class LogContents(NamedTuple):
    """The number of lines of a log, and their SHA-256 (empty in checkpoints of version 0.1)."""

    num_records: int = 0
    digest: str = ""

    def changes_since(self, before: "LogContents") -> list[str]:
        """A sentence if records were lost or changed since ``before``."""
        if self.num_records < before.num_records:
            return [f"metrics.jsonl: records were lost: {self.num_records} left of {before.num_records}"]
        is_same = before.digest in ("", self.digest)
        return [] if is_same else ["metrics.jsonl: records were changed since they were written"]


class MetricsLog:
    """Appends to ``metrics.jsonl``.

    Lines that a killed run wrote after ``step``, or after the first ``max_records`` lines, are removed first: a resumed run
    leaves the same file as an uninterrupted one. ``earlier``: the records that are kept.
    """

    def __init__(self, path: Path, step: int, max_records: int | None = None) -> None:
        self.earlier = [record for record in read_metrics(path) if record["step"] <= step][:max_records]
        text = "".join(map(_line, self.earlier))
        write_whole(path, text)
        self._num_records, self._sum = len(self.earlier), sha256(text.encode())
        self._file = path.open("a", encoding="utf-8")

    @property
    def contents(self) -> LogContents:
        return LogContents(self._num_records, self._sum.hexdigest())

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Records ``metrics`` measured after ``step`` updates; a number that is not finite becomes null."""
        clean = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        line = _line({"step": step, **clean})
        self._file.write(line)
        self._num_records += 1
        self._sum.update(line.encode())
        self._file.flush()

    def sync(self) -> None:
        """Returns when everything written is on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a ``metrics.jsonl``, none if the file does not exist yet; raises DataError when it is damaged."""
    return read_records(path) if path.is_file() else []


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"
