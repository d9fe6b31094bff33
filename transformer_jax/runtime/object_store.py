"""Object stores (``s3://``, ``gs://``) by fsspec: the file system of an address, and files that many machines share."""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.checks import absolute_path, is_address, is_unasked, without_mark
from transformer_jax.config.errors import first_line
from transformer_jax.config.json_text import parse_json
from transformer_jax.runtime.atomic_files import appearing_file, write_whole
from transformer_jax.runtime.open_copies import MARKER, OBJECTS, StoreError

# The names that s3fs and gcsfs give the digests of a store; S3's depends on upload and encryption too.
ETAG = "ETag"
_DIGESTS = ("size", ETAG, "crc32c", "md5Hash")


def open_store(address: str) -> Any:
    """The file system of the objects below an address."""
    scheme, _, rest = address.partition("://")
    if not rest.strip("/") or rest.startswith("/") or "::" in address or scheme in ("file", "local"):
        raise ConfigError(f"{address}: not the address of an object store; write s3://BUCKET/FOLDER")
    try:
        import fsspec
        from fsspec.implementations.dirfs import DirFileSystem

        # Listings of other processes' objects must be new, also for epath.
        for store in ("s3", "gs", "gcs"):
            fsspec.config.conf.setdefault(store, {}).setdefault("use_listings_cache", False)
        files, root = fsspec.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{address}: {error}; install the extra object-stores, or s3fs and gcsfs") from None
    return DirFileSystem(str(root).rstrip("/"), files)


@contextmanager
def store_errors(address: str) -> Iterator[None]:
    """Raises StoreError for every exception of a library."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = first_line(error) or type(error).__name__
        if "storage.buckets.get" in str(error):
            reason = "Orbax needs the permission storage.buckets.get (roles/storage.legacyBucketReader)"
        elif isinstance(error, FileNotFoundError):
            reason = f"no such file: {error.filename or reason}"
        raise StoreError(f"{address}: {reason}") from error


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


def write_object_digests(checkpoint: str) -> None:
    """Writes ``OBJECTS`` into a checkpoint in a store: the size of each of its objects, and checksums from the listing."""
    files = open_store(checkpoint)
    with store_errors(checkpoint):
        files.pipe_file(OBJECTS, json.dumps({"address": checkpoint, "objects": _object_digests(files)}).encode())


def changed_objects(checkpoint: str, prefixes: Iterable[str]) -> list[str]:
    """Objects of a checkpoint in a store that were removed or changed since ``OBJECTS``; empty where it has none.

    ``prefixes``: files or folders to check. Of a checkpoint that was copied to another address, ETags are not compared.
    """
    files = open_store(checkpoint)
    with store_errors(checkpoint):
        found = _object_digests(files)
        if OBJECTS not in found:
            return []
        try:
            content = parse_json(files.cat_file(OBJECTS))
            recorded = {name: dict(digests) for name, digests in content["objects"].items()}
            left_out = () if content["address"] == checkpoint else (ETAG,)
        except (ValueError, KeyError, TypeError, AttributeError):
            return [OBJECTS]

    def is_same(name: str) -> bool:
        before, now = recorded[name], found.get(name, {})
        keys = (before.keys() & now.keys()).difference(left_out)
        return "size" in keys and all(before[key] == now[key] for key in keys)

    wanted = tuple(f"{prefix}/" for prefix in prefixes)
    return sorted(name for name in recorded if f"{name}/".startswith(wanted) and not is_same(name))


def _object_digests(files: Any) -> dict[str, dict[str, Any]]:
    files.fs.invalidate_cache()
    found = files.find("", detail=True).items()
    return {name: {key: info[key] for key in _DIGESTS if key in info} for name, info in found}


def move_objects(source: str, target: str) -> None:
    """Moves all objects below ``source`` to ``target``, since epath cannot rename folders of a store."""
    files, other = open_store(source), open_store(target)
    with store_errors(source):
        names = files.find("")
        for name in names:
            files.fs.cp_file(f"{files.path}/{name}", f"{other.path}/{name}")
        # Without MARKER the rest counts for nothing, if this is cut short.
        for name in sorted(names, key=lambda name: not name.endswith(MARKER)):
            remove_object(files, name)


def remove_object(files: Any, name: str) -> None:
    """Removes an object, which a first attempt whose answer was lost may have removed."""
    with suppress(FileNotFoundError):
        files.rm_file(name)
