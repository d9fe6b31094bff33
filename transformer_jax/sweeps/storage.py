"""Storage of a study: a file, or a database shared by any number of machines."""

import logging
import time
from pathlib import Path

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from sqlalchemy.exc import SQLAlchemyError

from transformer_jax.config import ConfigError
from transformer_jax.config.secrets import masked, require_address

UNREACHABLE = StorageInternalError, SQLAlchemyError, OSError
"""Errors that a study raises while its storage does not answer."""

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
        return JournalStorage(JournalFileBackend(str(file), lock_obj=JournalFileOpenLock(str(file))))
    except OSError as error:
        raise ConfigError(f"--storage: {file}: {error.strerror}; give a file that can be written") from None
    except ValueError:
        raise ConfigError(f"--storage: {file} is not the journal of a study; move it away") from None
