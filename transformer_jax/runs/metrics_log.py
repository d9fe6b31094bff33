"""``metrics.jsonl``: the metrics of a run, one JSON object with its CRC-32 a line."""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.errors import DataError, StoreError
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.checked_json import CheckedLog, read_log, with_crc
from transformer_jax.files.paths import in_store
from transformer_jax.runtime.background import future_of

# Between checkpoints a log in a store is rewritten at this interval, and at most at this rate.
SECONDS_BETWEEN_UPLOADS = 30.0
UPLOADED_BYTES_PER_SECOND = 100_000


class LogContents(NamedTuple):
    """The number of records of a log, and their SHA-256 (empty in checkpoints of version 0.1)."""

    num_records: int = 0
    digest: str = ""

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> "LogContents":
        """Return the contents of a log with these records."""
        return cls(len(records), _digest_of(records).hexdigest())

    def changes_since(self, before: "LogContents") -> list[str]:
        """Return a sentence if records were lost or changed since ``before``."""
        if self.num_records < before.num_records:
            return [f"metrics.jsonl: records were lost: {self.num_records} left of {before.num_records}"]
        is_same = before.digest in ("", self.digest)
        return [] if is_same else ["metrics.jsonl: records were changed since they were written"]


class MetricsLog:
    """Appends to ``metrics.jsonl``.

    Lines that a killed run wrote after ``step``, or after the first ``max_records`` lines, are
    removed first, so that a resumed run leaves the same file as an uninterrupted one. ``earlier``:
    the records that are kept. In a store ``require_lock`` is called before the log is written.
    """

    def __init__(
        self, path: Path, step: int, max_records: int | None = None, require_lock: Callable[[], object] = lambda: None
    ) -> None:
        self.earlier = [record for record in read_metrics(path) if record["step"] <= step][:max_records]
        text = "".join(_line(with_crc(record)) for record in self.earlier)
        write_whole(path, text)
        self._num_records, self._sum = len(self.earlier), _digest_of(self.earlier)
        self._file = _StoredText(path, text, require_lock) if in_store(path) else path.open("a", encoding="utf-8")

    @property
    def contents(self) -> LogContents:
        return LogContents(self._num_records, self._sum.hexdigest())

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Record ``metrics`` after ``step`` updates. A number that is not finite becomes null."""
        record = {"step": step, **{name: value if math.isfinite(value) else None for name, value in metrics.items()}}
        self._file.write(_line(with_crc(record)))
        self._num_records += 1
        self._sum.update(_line(record).encode())
        self._file.flush()

    def sync(self) -> None:
        """Wait until everything is on disk or in the store."""
        if isinstance(self._file, _StoredText):
            self._file.upload()
            return
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class _StoredText:
    """A text file in a store: rewritten whole at each checkpoint and at intervals."""

    def __init__(self, path: Path, text: str, require_lock: Callable[[], object]) -> None:
        self._path, self._text, self._require_lock = path, text, require_lock
        self._uploaded, self._time = text, time.monotonic()
        self._upload: Future[None] | None = None

    def write(self, text: str) -> None:
        self._text += text

    def flush(self) -> None:
        """Start an upload if one is due. The next checkpoint reports its failure."""
        pause = max(SECONDS_BETWEEN_UPLOADS, len(self._text) / UPLOADED_BYTES_PER_SECOND)
        if time.monotonic() - self._time > pause and (self._upload is None or self._upload.done()):
            self._time, self._upload = time.monotonic(), future_of(self._replace, self._text)

    def upload(self) -> None:
        """Upload the text. Raises StoreError."""
        with suppress(StoreError):
            if self._upload:
                # An older text must not replace a newer one.
                self._upload.result()
        if self._uploaded != self._text:
            self._replace(self._text)

    def _replace(self, text: str) -> None:
        self._require_lock()
        write_whole(self._path, text)
        self._uploaded = text

    def close(self) -> None:
        """Upload once more. A failure must not hide the error that ends the run."""
        with suppress(StoreError):
            self.upload()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a ``metrics.jsonl``, if it exists. Raises DataError if damaged."""
    log = sound_metrics(path)
    if log.problems:
        raise DataError(log.problems[0])
    return log.records


def sound_metrics(path: Path) -> CheckedLog:
    """Return the sound records and the damaged lines of a ``metrics.jsonl`` that may not exist."""
    return read_log(path) if path.is_file() else CheckedLog([], [])


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + "\n"


def _digest_of(records: Iterable[Mapping[str, Any]]) -> Any:
    """Return the SHA-256 of the lines without their CRC-32, which version 0.1 did not write."""
    return sha256("".join(map(_line, records)).encode())
