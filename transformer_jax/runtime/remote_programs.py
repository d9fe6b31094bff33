"""Compiled programs that machines share through an object store: downloaded at the start, uploaded as they come.

JAX could read and write the store itself, but by way of TensorFlow where that is installed, and one program at a time.
"""

import atexit
import importlib
import sys
import threading
import time
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from transformer_jax.runtime.object_stores import Store, StoreError, for_each, is_safe, mirror_folder

PAUSE = 30.0
"""Seconds between two looks at what was compiled."""

# JAX writes a program under its final name, and when a process is killed half of it.
_SECONDS_TO_WRITE, _PATIENCE = 2.0, 20.0
_SUFFIX = "-cache"
# How what they compressed begins.
_ZLIB, _ZSTANDARD = b"\x78", b"\x28\xb5\x2f\xfd"
_OPEN: list["RemotePrograms"] = []


@cache
def local_programs(address: str) -> Path:
    """The folder with the programs at ``address``; what JAX adds to it is uploaded until the process ends.

    Raises StoreError when the store does not answer; what cannot be uploaded later is said, and costs the end 20 s.
    """
    programs = RemotePrograms(address)
    programs.download()
    _OPEN.append(programs)
    threading.Thread(target=programs.upload_for_ever, name="compiled programs", daemon=True).start()
    atexit.register(upload_the_rest)
    return programs.folder


def upload_the_rest() -> None:
    """Uploads what is left, for the end of a command: once the interpreter ends, libraries of stores cannot start threads."""
    while _OPEN:
        programs = _OPEN.pop()
        if programs.new_files():
            time.sleep(_SECONDS_TO_WRITE)
            programs.upload()


class RemotePrograms:
    """The programs at ``address``, and their copies in ``folder``."""

    def __init__(self, address: str) -> None:
        self._store = Store(address, patience=_PATIENCE)
        self.folder = mirror_folder(self._store.address, "compiled")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settled: set[str] = set()
        self._is_failing = False

    def download(self) -> None:
        """Downloads what is missing here or was cut short; raises StoreError."""
        listed = self._store.listing(is_deep=False)
        missing = [name for name, found in listed.items() if _size(self.folder / name) != found.size]
        for_each(lambda name: self._store.download(name, self.folder / name, listed[name].size), missing)
        self._settled |= set(listed)

    def new_files(self) -> list[Path]:
        """The programs that the store lacks."""
        files = self.folder.glob(f"*{_SUFFIX}")
        return [file for file in files if file.name not in self._settled and is_safe(file.name)]

    def upload(self) -> None:
        """Uploads new programs that are complete; one that a killed process left half written is removed."""
        for file in self.new_files():
            try:
                age, content = time.time() - file.stat().st_mtime, file.read_bytes()
                if age < _SECONDS_TO_WRITE:
                    continue
                if not _is_whole(content):
                    file.unlink(missing_ok=True)
                    continue
                self._store.write(file.name, content)
            except StoreError as error:
                if not self._is_failing:
                    sys.stderr.write(f"{error}; compiled programs are not shared until it answers\n")
                self._is_failing = True
                return
            except OSError:
                # Another process removed it.
                continue
            self._settled.add(file.name)
        self._is_failing = False

    def upload_for_ever(self) -> None:
        """Uploads every ``PAUSE`` seconds."""
        while True:
            time.sleep(PAUSE)
            self.upload()


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else -1


def _is_whole(program: bytes) -> bool:
    """Whether the program can be decompressed: JAX compresses with zlib, or with zstandard where that is installed."""
    if program.startswith(_ZLIB):
        try:
            zlib.decompress(program)
        except zlib.error:
            return False
    elif program.startswith(_ZSTANDARD):
        try:
            zstandard: Any = importlib.import_module("zstandard")
        except ImportError:
            return True
        try:
            zstandard.ZstdDecompressor().decompress(program)
        except zstandard.ZstdError:
            return False
    return bool(program)
