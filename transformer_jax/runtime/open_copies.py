"""Runs in object stores, for code that opens no store: local copies that this process has open, names of files, errors."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformer_jax.config.errors import ConfigError, DataError, complain

SCRATCH = "TRANSFORMER_JAX_SCRATCH"
# A store cannot rename a folder: this file of a checkpoint is uploaded last and deleted first.
MARKER = "_CHECKPOINT_METADATA"
# Orbax writes MARKER earlier; a checkpoint that it writes to a store has IN_PROGRESS until it is complete, then COMMIT alone.
IN_PROGRESS, COMMIT = "in_progress", "commit_success.txt"
# Digests of the objects of a checkpoint, which the store computed.
OBJECTS = "object_digests.json"
OPEN: dict[Path, Any] = {}
"""Every ``run_copies.StoredFolder`` of this process by its local folder; that module is loaded only where there is one."""


class StoreError(DataError):
    """An object store refused, or did not answer. The message names the address."""


class LockLost(StoreError):
    """Another process trains at the address: it took this process for dead."""


def fetch_arrays(folder: Path, items: Iterable[str]) -> list[str]:
    """Downloads the arrays of some items of a checkpoint of a run in a store; call it before they are read.

    Returns the files that changed in the store since they were written.
    """
    copy = _copy_of(folder)
    return copy.fetch(folder, items) if copy else []


def has_object_digests(folder: Path) -> bool:
    """Whether ``fetch_arrays`` compares the digests of this checkpoint."""
    return (folder / OBJECTS).is_file() and _copy_of(folder) is not None


def address_of_checkpoints(folder: Path) -> str | None:
    """The address of a folder of checkpoints that Orbax writes and reads in the store itself, else None."""
    copy = _copy_of(folder)
    return f"{copy.address}/{folder.relative_to(copy.path).as_posix()}" if copy and copy.is_direct else None


def before_commit(checkpoint: str) -> None:
    """Uploads the logs of the run before one of its checkpoints counts as complete, so that no log is behind a checkpoint."""
    if copy := _copy_at(checkpoint):
        copy.upload()


def after_commit(checkpoint: str) -> None:
    """Makes the folder of a complete checkpoint in the local copy, so that ``outcome.json`` can name it."""
    if copy := _copy_at(checkpoint):
        (copy.path / checkpoint.removeprefix(f"{copy.address}/")).mkdir(parents=True, exist_ok=True)


def lock_problem(folder: Path) -> str:
    """Why nothing may be written to the store of a folder; empty while this process holds its lock, or needs none."""
    try:
        if copy := _copy_of(folder):
            copy.require_lock()
    except StoreError as error:
        return str(error)
    return ""


def leave_stores() -> None:
    """Uploads the runs that this process trains and releases their locks, before it ends without an orderly exit."""
    for copy in list(OPEN.values()):
        try:
            copy.leave()
        except (StoreError, OSError) as error:
            complain(str(error))


def with_addresses(text: str) -> str:
    """A message in which local copies are replaced by their addresses."""
    for folder, copy in OPEN.items():
        text = re.sub(rf"{re.escape(str(folder))}(?![\w-])", copy.address, text)
    return text


def scratch_folder() -> Path:
    """A folder on a disk of this host; raises ConfigError where another user, except root, owns it, or a link to it."""
    folder = Path(os.environ.get(SCRATCH) or "~/.cache/transformer_jax/scratch").expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owners = {folder.lstat().st_uid, folder.stat().st_uid}
    # In a container root may use a folder of the host.
    if os.getuid() and owners - {os.getuid(), 0}:
        raise ConfigError(
            f"{SCRATCH}: {folder} belongs to another user, who could change its files; set one of your own"
        )
    return folder


def _copy_of(folder: Path) -> Any:
    found = [copy for path, copy in OPEN.items() if folder.is_relative_to(path)]
    return max(found, key=lambda copy: len(copy.address), default=None)


def _copy_at(address: str) -> Any:
    found = [copy for copy in OPEN.values() if address.startswith(f"{copy.address}/")]
    return max(found, key=lambda copy: len(copy.address), default=None)
