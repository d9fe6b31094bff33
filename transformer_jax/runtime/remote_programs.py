"""Compiled programs that machines share through an object store: downloaded at the start, uploaded as they come.

JAX could read and write the store itself, but by way of TensorFlow where that is installed, and one program at a time.
"""

import atexit
import sys
import threading
import time
from functools import cache
from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.runtime.object_stores import Store, each, is_safe, mirror_folder

PAUSE = 30.0
"""Seconds between two looks at what was compiled."""

# JAX writes a program under its final name.
_SECONDS_TO_WRITE = 2.0
_PATIENCE = 20.0


@cache
def local_programs(address: str) -> Path:
    """The folder with the programs at ``address``; what JAX adds to it is uploaded until the process ends.

    Raises StoreError when the store does not answer; what cannot be uploaded later is said and costs nothing else.
    """
    programs = RemotePrograms(address)
    programs.download()
    threading.Thread(target=programs.upload_for_ever, name="compiled programs", daemon=True).start()
    atexit.register(programs.upload, seconds_to_write=0.0)
    return programs.folder


class RemotePrograms:
    """The programs at ``address``, and their copies in ``folder``."""

    def __init__(self, address: str) -> None:
        self._store = Store(address, patience=_PATIENCE)
        self.folder = mirror_folder(self._store.address, "compiled")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stored: set[str] = set()
        self._is_failing = False

    def download(self) -> None:
        """Downloads what is missing; raises StoreError."""
        listed = self._store.listing()
        missing = [name for name in listed if "/" not in name and not (self.folder / name).is_file()]
        each(lambda name: self._store.download(name, self.folder / name, listed[name].size), missing)
        self._stored |= set(listed)

    def upload(self, seconds_to_write: float = _SECONDS_TO_WRITE) -> None:
        """Uploads the programs that the store lacks and that were not written to in the last ``seconds_to_write``."""
        before = time.time() - seconds_to_write
        try:
            for file in self.folder.iterdir():
                name = file.name
                if name in self._stored or not is_safe(name) or name.endswith(".partial") or not file.is_file():
                    continue
                if file.stat().st_mtime <= before:
                    self._store.upload(file, name)
                    self._stored.add(name)
            self._is_failing = False
        except (DataError, OSError) as error:
            if not self._is_failing:
                sys.stderr.write(f"{error}; compiled programs are not shared until it answers\n")
            self._is_failing = True

    def upload_for_ever(self) -> None:
        """Uploads every ``PAUSE`` seconds."""
        while True:
            time.sleep(PAUSE)
            self.upload()
