"""Storage of a study: a file, or a database shared by any number of machines."""

import json
import logging
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from sqlalchemy.exc import SQLAlchemyError

from transformer_jax.config import ConfigError
from transformer_jax.config.secrets import masked, require_address

UNREACHABLE = StorageInternalError, SQLAlchemyError, OSError
"""Errors that a study raises while its storage does not answer."""


class StudyLost(ConfigError):
    """The study did not come back, or is damaged: what a worker does would no longer be recorded."""


STUDY_FILE = "study.journal"
# Seconds between attempts to open a database.
PAUSES = 0.5, 1.5, 0.0
# What to install for a database, by the name that SQLAlchemy gives its driver's module.
DRIVERS = {"psycopg2": "psycopg2-binary", "psycopg": "psycopg[binary]", "MySQLdb": "mysqlclient", "pymysql": "pymysql"}


def storage_url(given: str, workdir: Path) -> str:
    """``given``, or the file in ``workdir`` where none is; a path is that of a journal file.

    Raises ConfigError where an address would be read otherwise than it is meant.
    """
    if not given:
        return str(workdir.absolute() / STUDY_FILE)
    require_address("--storage", given)
    return given if "://" in given else str(Path(given).expanduser().absolute())


def unreachable(storage: BaseStorage, error: Exception) -> str:
    """One line for the log of a worker, without the password of the storage's address."""
    address = getattr(getattr(storage, "_backend", storage), "url", "")
    return f"the study cannot be reached: {masked(str(error).strip().partition(chr(10))[0], address)}"


def study_lost(storage: BaseStorage, error: Exception) -> StudyLost:
    """The error that ends a command whose storage does not answer any more."""
    return StudyLost(f"{unreachable(storage, error)}; once it is back, the same command resumes")


@contextmanager
def reaching(storage: BaseStorage) -> Iterator[None]:
    """Raises StudyLost where the storage does not answer in the block."""
    try:
        yield
    except UNREACHABLE as error:
        raise study_lost(storage, error) from None


def open_storage(url: str) -> BaseStorage:
    """The storage at ``url``: a path (a journal file, which may lie on a disk that machines share) or that of a database.

    Raises ConfigError when it cannot be reached, or its driver is not installed.
    """
    optuna.logging.set_verbosity(logging.ERROR)
    # Wrapped as a study would wrap it, so that both share one cache.
    return get_storage(_open_journal(Path(url)) if "://" not in url else _open_database(url))


def _open_database(url: str) -> BaseStorage:
    if url.startswith("sqlite"):
        # It has no locks on rows, with which Optuna lets one worker claim a trial: two were seen to get the same.
        raise ConfigError(
            "--storage: two workers of an SQLite study can claim one trial; give the path of a journal file instead"
        )
    for pause in PAUSES:
        try:
            return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
        except ImportError as error:
            # Optuna wraps what SQLAlchemy missed.
            missing = getattr(error.__cause__ or error, "name", None) or url.partition("://")[0].partition("+")[2]
            needed = DRIVERS.get(missing, missing)
            raise ConfigError(f"--storage: {masked(url)} needs a driver: pip install {needed}") from None
        # Each driver raises different errors, and Optuna wraps some of them.
        except Exception as error:
            reason = masked(str(error.__cause__ or error).strip().split("\n")[0], url)
            problem = f"cannot be opened ({type(error).__name__}: {reason})"
        # Of workers that make the tables at the same time one succeeds, and the others find them the next time.
        time.sleep(pause)
    raise ConfigError(
        f"--storage: {masked(url)} {problem}; give postgresql+psycopg://USER:PASSWORD@HOST/DATABASE, "
        "mysql+pymysql://... or the path of a journal file"
    )


def _open_journal(file: Path) -> BaseStorage:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(_Journal(str(file), JournalFileOpenLock(str(file))))
    except OSError as error:
        raise ConfigError(f"--storage: {file}: {error.strerror}; give a file that can be written") from None
    # Lines that are not JSON, or JSON that is no record of a study.
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError):
        raise ConfigError(
            f"--storage: {file} is not the journal of a study, or damaged; move it away: trials resume from their folders"
        ) from None


class _Journal(JournalFileBackend):
    """Never made anew while it is in use, nor continued within a line that a kill cut short."""

    def __init__(self, file: str, lock: JournalFileOpenLock) -> None:
        super().__init__(file, lock)
        self._file, self._own_lock = file, lock

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Raises StudyLost when lines that were read are gone."""
        if Path(self._file).stat().st_size < max(self._log_number_offset.values()):
            raise StudyLost(f"--storage: {self._file} was cut short while in use; put it back, or move it away")
        return super().read_logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Raises FileNotFoundError where the journal is gone."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        self._own_lock.acquire()
        try:
            with open(self._file, "rb+") as file:
                file.truncate(_end_of_whole_lines(file))
                file.seek(0, os.SEEK_END)
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        finally:
            self._own_lock.release()


def _end_of_whole_lines(file: BinaryIO) -> int:
    size = file.seek(0, os.SEEK_END)
    if size:
        file.seek(size - 1)
    if file.read(1) in (b"", b"\n"):
        return size
    file.seek(0)
    return file.read().rfind(b"\n") + 1
