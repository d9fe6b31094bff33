"""Files that many machines share, in a folder or an object store, by fsspec."""

import os
import shutil
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from transformer_jax.config import ConfigError
from transformer_jax.config.checks import absolute_path, is_address, is_unasked, without_mark
from transformer_jax.config.store_path import file_system, store_errors
from transformer_jax.runtime.atomic_files import appearing_file, write_whole

SCRATCH = "TRANSFORMER_JAX_SCRATCH"


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


def open_store(address: str) -> Any:
    """The file system of the objects below an address."""
    scheme, _, rest = address.partition("://")
    if not rest.strip("/") or rest.startswith("/") or "::" in address or scheme in ("file", "local"):
        raise ConfigError(f"{address}: not the address of an object store; write s3://BUCKET/FOLDER")
    files = file_system(scheme)
    from fsspec.implementations.dirfs import DirFileSystem

    return DirFileSystem(str(files._strip_protocol(address)).rstrip("/"), files)


class SharedFolder:
    """Files below ``address``, an absolute path or an address of an object store, for jobs on several machines.

    Raises ConfigError, which names ``key``, at an address that the user did not name, and StoreError where a store or disk
    refuses.
    """

    def __init__(self, address: str, key: str) -> None:
        if is_unasked(address):
            address = without_mark(address)
            raise ConfigError(
                f"{key}: {address} comes from the settings of a run; name it yourself: --config.{key}={address}"
            )
        self._is_local = not is_address(address)
        self.address = absolute_path(address, key) if self._is_local else address.rstrip("/")
        if self._is_local:
            from fsspec.implementations.dirfs import DirFileSystem

            self._files: Any = DirFileSystem(self.address, target_protocol="file", target_options={"auto_mkdir": True})
        else:
            self._files = open_store(self.address)

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes of the files in a folder, by name, sorted; empty where there is no folder."""
        with store_errors(self.address):
            self._files.fs.invalidate_cache()
            try:
                found = self._files.ls(folder, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                found = []
        return {
            Path(each["name"]).name: each["size"]
            for each in sorted(found, key=itemgetter("name"))
            if each["type"] == "file"
        }

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder."""
        return list(self.sizes(folder))

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""
        with store_errors(self.address):
            self._files.fs.invalidate_cache()
            # fsspec's isfile and isdir take a refusal for a missing file.
            try:
                content: bytes = self._files.cat_file(name)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return content

    def write(self, name: str, content: str) -> None:
        """Writes or replaces a file atomically."""
        with store_errors(self.address):
            if self._is_local:
                write_whole(Path(self.address) / name, content)
            else:
                self._files.pipe_file(name, content.encode())

    def put(self, here: Sequence[Path], name: str = "") -> None:
        """Copies local files to the folder ``name``, by default to the address itself, each atomically."""
        with store_errors(self.address):
            if not self._is_local:
                self._files.put([str(file) for file in here], [f"{name}/{file.name}".lstrip("/") for file in here])
                return
            for file in here:
                with appearing_file(Path(self.address, name, file.name)) as copy, file.open("rb") as content:
                    shutil.copyfileobj(content, copy)

    def get(self, name: str, files: Iterable[str], folder: Path) -> None:
        """Copies some files of the folder ``name`` to a local folder."""
        folder.mkdir(parents=True, exist_ok=True)
        files = list(files)
        with store_errors(self.address):
            self._files.get([f"{name}/{file}" for file in files], [str(folder / file) for file in files])

    def ranges(self, names: Sequence[str], begins: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        """The bytes ``begin:end`` of each file, requested together."""
        with store_errors(self.address):
            found: list[bytes] = self._files.cat_ranges(names, begins, ends, on_error="raise")
            return found
