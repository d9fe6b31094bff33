"""Object stores (``s3://``, ``gs://``, ...) through fsspec: whole objects, checked names, errors that are sentences."""

import errno
import os
import sys
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.secrets import masked, secrets_in
from transformer_jax.runtime.retries import reason_of, retried

Result = TypeVar("Result")

PATIENCE = 120.0
"""Seconds for which one operation is tried again."""

MIRRORS = "TRANSFORMER_JAX_MIRRORS"
_THREADS = 8
_LONGEST_NAME = 255
# hdfs:///a is a of the name node that the environment names.
_WITHOUT_BUCKET = ("hdfs", "webhdfs", "dbfs")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_MIRRORED: dict[str, str] = {}


class StoreError(DataError):
    """An object store refused, or did not answer for long. The message names the object."""


class StoredObject(NamedTuple):
    """An object of a store: its size in bytes, and a text that differs when its content does; empty where nothing tells."""

    size: int
    version: str

    @classmethod
    def described(cls, info: dict[str, Any]) -> "StoredObject":
        """The object that a file system of fsspec describes."""
        found = (
            info.get(key) for key in ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
        )
        told = next((str(value) for value in found if value), "")
        return cls(int(info.get("size") or 0), told and f"{info.get('size')} {told}")


class Store:
    """The objects below an address, by their relative names.

    Every operation is tried again for ``patience`` seconds; then, or when the store refuses, it raises StoreError.
    """

    def __init__(self, address: str, patience: float = PATIENCE) -> None:
        self.address, self.patience = address.rstrip("/"), patience
        self._files, self._root = _opened(self.address)

    def listing(self, is_deep: bool = True) -> dict[str, StoredObject]:
        """All objects, or only those that are in no folder below, from the store itself.

        Raises DataError at a name that no file below a folder can have.
        """
        depth = {} if is_deep else {"maxdepth": 1}

        def find() -> dict[str, Any]:
            self._files.invalidate_cache()
            found: dict[str, Any] = self._files.find(self._root, detail=True, **depth)
            return found

        found = self._tried(find, "")
        # Of runs/a and runs/ab some stores list both.
        below = f"{self._root}/"
        names = {path.removeprefix(below): info for path, info in found.items() if path.startswith(below)}
        objects = {name: info for name, info in names.items() if name and not name.endswith("/")}
        for name in objects:
            if not is_safe(name):
                raise DataError(f"{self.address}: holds {name[:100]!r}, which is not a valid file name; remove it")
        return {name: StoredObject.described(info) for name, info in objects.items()}

    def find(self, name: str) -> StoredObject | None:
        """An object by its name; None where there is none."""

        def find() -> StoredObject | None:
            self._files.invalidate_cache()
            try:
                info = self._files.info(self._path(name))
            except FileNotFoundError:
                return None
            return StoredObject.described(info) if info["type"] == "file" else None

        return self._tried(find, name)

    def read(self, name: str) -> bytes:
        """The content of an object; empty where there is none."""

        def read() -> bytes:
            try:
                content: bytes = self._files.cat_file(self._path(name))
            except FileNotFoundError:
                content = b""
            return content

        return self._tried(read, name)

    def write(self, name: str, content: bytes) -> None:
        """Replaces an object."""
        self._tried(lambda: self._files.pipe_file(self._path(name), content), name)

    def create(self, name: str, content: bytes) -> bool:
        """Writes an object unless there is one; whether it did. Of several processes one does."""
        path = self._path(name)

        def create() -> bool:
            try:
                self._files.pipe_file(path, content, mode="create")
            except OSError:
                # Stores name this differently; or the answer to an earlier attempt was lost.
                self._files.invalidate_cache()
                if not self._files.exists(path):
                    raise
                return False
            return True

        return self._tried(create, name)

    def download(self, name: str, file: Path, size: int) -> None:
        """Writes an object of ``size`` bytes to a file, which appears at once; one cut short is read again.

        Raises DataError, which names the file, where the disk is full.
        """
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{uuid.uuid4().hex}.partial")

        def get() -> None:
            self._files.invalidate_cache()
            try:
                self._files.get_file(self._path(name), str(partial))
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise DataError(
                        f"{file}: {reason_of(error)}; {MIRRORS} names the folder for local copies"
                    ) from None
                raise
            arrived = partial.stat().st_size
            if arrived != size:
                # A log may have grown since it was listed; some stores do not know the size.
                now = self._files.info(self._path(name)).get("size")
                if now is not None and arrived != now:
                    raise OSError(errno.EIO, f"{arrived} of {now} bytes arrived")

        try:
            self._tried(get, name)
            with partial.open("rb") as content:
                os.fsync(content)
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)

    def upload(self, file: Path, name: str) -> None:
        """Replaces an object by a file; raises FileNotFoundError where that is gone."""
        if not file.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        self._tried(lambda: self._files.put_file(str(file), self._path(name)), name)

    def remove(self, name: str) -> None:
        """Deletes an object, if it is there."""

        def remove() -> None:
            with suppress(FileNotFoundError):
                self._files.rm_file(self._path(name))

        self._tried(remove, name)

    def _path(self, name: str) -> str:
        if not is_safe(name):
            raise DataError(f"{self.address}: {name[:100]!r} is not a valid file name")
        return f"{self._root}/{name}"

    def _tried(self, operation: Callable[[], Result], name: str) -> Result:
        what = f"{self.address}/{name}" if name else self.address
        try:
            return retried(operation, what, self.patience)
        except DataError:
            raise
        except Exception as error:
            raise StoreError(f"{what}: {reason_of(error)}") from error


def for_each(work: Callable[[str], object], names: Iterable[str]) -> None:
    """Does ``work`` for several objects at once."""
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for _ in pool.map(work, names):
            pass
    finally:
        # Where one failed, the others would only wait for the same store.
        pool.shutdown(cancel_futures=True)


def notify(text: str) -> None:
    """Prints a line on standard error, at once: what happens to objects and their local copies."""
    sys.stderr.write(f"{text}\n")


def is_safe(name: str) -> bool:
    """Whether a name in a store can be that of a file below a folder, and of none elsewhere."""
    # Not so where a file's name is not UTF-8.
    if not name.isprintable():
        return False
    parts = name.split("/")
    is_inside = all(part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_NAME for part in parts)
    return is_inside and not any(sign in name for sign in '\\:*?"<>|')


def mirror_folder(address: str, purpose: str) -> Path:
    """The local folder for what lies at an address, below ``$TRANSFORMER_JAX_MIRRORS`` or the user's cache."""
    root = os.environ.get(MIRRORS) or "~/.cache/transformer_jax/mirrors"
    readable = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in address)[-60:].strip("-")
    name = f"{readable}-{sha256(address.encode()).hexdigest()[:12]}"
    return Path(root).expanduser().absolute() / name / purpose


def name_mirror(folder: Path, address: str) -> None:
    """From now on ``with_addresses`` knows ``folder`` for a copy of what lies at ``address``."""
    _MIRRORED[str(folder)] = address


def with_addresses(text: str) -> str:
    """A message, with the address in place of the local copy."""
    for folder, address in _MIRRORED.items():
        text = text.replace(folder, address)
    return text


def require_no_password(address: str) -> None:
    """Raises ConfigError at a password in an address: errors of libraries would show it."""
    if secrets_in(address):
        raise ConfigError(
            f"{masked(address)}: a password in the address of an object store; leave it out, and give it in the environment"
        )


def _opened(address: str) -> tuple[Any, str]:
    """The file system of an address, and its path there."""
    require_no_password(address)
    scheme, _, rest = address.partition("://")
    is_rooted = rest.startswith("/") and scheme not in _WITHOUT_BUCKET
    if not rest or is_rooted or "::" in address or scheme in ("file", "local") or scheme != scheme.lower():
        raise ConfigError(
            f"{address}: not the address of an object store; write s3://BUCKET/FOLDER, or a path as it is"
        )
    try:
        import fsspec

        files, root = fsspec.url_to_fs(address)
    except ImportError as error:
        raise ConfigError(
            f"{address}: {reason_of(error)}; give the package its extra object-stores, or pip install s3fs gcsfs"
        ) from None
    # File systems of other kinds want arguments that an address has no place for.
    except Exception as error:
        raise ConfigError(f"{address}: {reason_of(error)}; write s3://BUCKET/FOLDER or gs://BUCKET/FOLDER") from None
    return files, str(root).rstrip("/")
