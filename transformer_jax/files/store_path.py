"""Files in object stores by etils.epath and fsspec. Errors carry the address."""

import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, Self, TypeVar

from etils.epath.gpath import PosixGPath
from etils.epath.stat_utils import StatResult

from transformer_jax.errors import ConfigError, DataError, StoreError, complain, first_line
from transformer_jax.private_modules import keep_tensorflow_from_epath

keep_tensorflow_from_epath()
# TensorStore asks again after a minute without an answer; it would wait without limit.
os.environ.setdefault("TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS", "60")
os.environ.setdefault("TENSORSTORE_CURL_LOW_SPEED_LIMIT_BYTES", "1")

# A request that the store does not answer is repeated for this many seconds.
SECONDS_OF_OUTAGE = 120.0
# If it never answered before, the address is likely wrong.
SECONDS_TO_FIRST_ANSWER = 10.0
# Silence is reported after this many seconds.
SECONDS_OF_SILENCE = 20.0
# Between two requests, in seconds.
LONGEST_PAUSE = 5.0
Answer = TypeVar("Answer")
_HAS_ANSWERED = threading.Event()
# Since the last answer.
_GAVE_UP, _IS_REPORTED = threading.Event(), threading.Event()


@contextmanager
def store_errors(address: object) -> Iterator[None]:
    """Raise StoreError for every exception of a library."""
    try:
        yield
    except (ConfigError, DataError):
        raise
    except Exception as error:
        reason = first_line(error) or type(error).__name__
        if "storage.buckets.get" in str(error):
            reason = "Orbax needs the permission storage.buckets.get (roles/storage.legacyBucketReader)"
        elif isinstance(error, FileNotFoundError):
            reason = f"no such file: {error.filename or reason}"
        raise StoreError(str(address), reason, is_outage=is_outage(error)) from error


def is_outage(error: BaseException) -> bool:
    """Return whether a store, or the network, did not answer: the request may succeed later."""
    if isinstance(error, StoreError):
        return error.is_outage
    if status := _http_status(error):
        return status in (408, 409, 429) or status >= 500
    # Of botocore, aiohttp, requests and google.auth, which need not be installed.
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"HTTPClientError", "EndpointConnectionError", "ConnectTimeoutError", "ClientError", "RequestException"}:
        return True
    if names & {"TransportError", "FSTimeoutError", "ChecksumError", "ResponseParserError"}:
        return True
    is_of_network = isinstance(error, OSError) and error.errno in (errno.EBUSY, errno.EIO, errno.EREMOTEIO)
    # TensorStore has no class of errors.
    of_tensorstore = re.search(r"\b(UNAVAILABLE|ABORTED|DEADLINE_EXCEEDED)\b", str(error)) is not None
    return isinstance(error, TimeoutError | ConnectionError) or is_of_network or of_tensorstore


def _http_status(error: BaseException) -> int:
    """Return the status of the answer that an error reports, 0 without an answer."""
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    status = getattr(error, "code", None)
    if isinstance(response, dict):
        status = response["ResponseMetadata"].get("HTTPStatusCode")
    return int(str(status)) if str(status).isdecimal() else 0


def answer(address: object, ask: Callable[[], Answer]) -> Answer:
    """Return the result of ``ask``, called again while the store does not answer.

    Reports a long silence. Raises the last error after ``SECONDS_OF_OUTAGE``, and each refusal at
    once. Then a run ends, and the requests that it still makes are not repeated. Raises StoreError
    after ``SECONDS_TO_FIRST_ANSWER`` if the store never answered.
    """
    began, pause = time.monotonic(), 0.1
    while True:
        try:
            result = ask()
            _HAS_ANSWERED.set()
            _GAVE_UP.clear()
            _IS_REPORTED.clear()
            return result
        except Exception as error:
            waited = time.monotonic() - began
            if not is_outage(error) or _http_status(error):
                _HAS_ANSWERED.set()
            if not is_outage(error) or _GAVE_UP.is_set():
                raise
            if not _HAS_ANSWERED.is_set() and waited + pause > SECONDS_TO_FIRST_ANSWER:
                problem = f"no answer ({first_line(error) or type(error).__name__})"
                remedy = "check the network, and the address in AWS_ENDPOINT_URL if that is set"
                raise StoreError(str(address), f"{problem}; {remedy}", is_outage=True) from error
            if waited + pause > SECONDS_OF_OUTAGE:
                _GAVE_UP.set()
                raise
            if waited > SECONDS_OF_SILENCE and not _IS_REPORTED.is_set():
                _IS_REPORTED.set()
                complain(f"{address} does not answer ({first_line(error) or type(error).__name__}); asking again")
        time.sleep(pause)
        pause = min(1.7 * pause, LONGEST_PAUSE)


def file_system(scheme: str) -> Any:
    """Return fsspec's file system of ``scheme``. Raises ConfigError without its library."""
    try:
        import fsspec

        # Listings of other processes' objects must be new, also for epath.
        for store in ("s3", "gs", "gcs"):
            fsspec.config.conf.setdefault(store, {}).setdefault("use_listings_cache", False)
        # ``answer`` repeats requests; botocore does not repeat all, and gcsfs logs tracebacks.
        fsspec.config.conf["s3"].setdefault("config_kwargs", {"retries": {"max_attempts": 0}})
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        files = fsspec.filesystem(scheme)
        if scheme == "s3":
            files.retries = 1
        return files
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{scheme}://", error, "install the extra object-stores, or s3fs and gcsfs") from None


def kvstore(address: str) -> dict[str, Any]:
    """Return TensorStore's spec of a folder in a bucket. Raises ConfigError for other addresses."""
    scheme, _, rest = address.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme not in ("gs", "s3") or not bucket:
        raise ConfigError(address, "not the address of a bucket", "write s3://BUCKET/FOLDER or gs://BUCKET/FOLDER")
    if scheme == "gs":
        return {"driver": "gcs", "bucket": bucket, "path": path}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    spec: dict[str, Any] = {"driver": "s3", "bucket": bucket, "path": path, "endpoint": endpoint, "aws_region": region}
    if "AWS_ACCESS_KEY_ID" in os.environ:
        # The default looks for files first, and logs an error for each missing file.
        spec["aws_credentials"] = {"type": "environment"}
    return {name: value for name, value in spec.items() if value}


class StorePath(PosixGPath):
    """A file or folder of a run at ``s3://`` or ``gs://`` with methods of ``pathlib.Path``.

    A method makes one request if the store allows it, and raises StoreError when refused. A folder
    exists if an object is below it.
    """

    @contextmanager
    def listed(self) -> Iterator["ListedPath"]:
        """Yield a path to this folder that answers from one listing until the block ends."""
        listing = _Listing(str(self), {f"{self}/{name}": info for name, info in self.objects().items()})
        try:
            yield ListedPath(self).with_listing(listing)
        finally:
            listing.objects = None

    def new(self) -> "ListedPath":
        """Return a path to this new folder, for the only process that writes files there."""
        return ListedPath(self).with_listing(_Listing(str(self), {}))

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        return answer(self, lambda: getattr(self.files, method)(str(self), *arguments, **options))

    @property
    def files(self) -> Any:
        """The file system of fsspec."""
        return file_system(str(self).partition("://")[0])

    def objects(self) -> dict[str, dict[str, Any]]:
        """Return the description of each object below this path: one request for a thousand."""
        with store_errors(self):
            self.files.invalidate_cache()
            infos = self._ask("find", detail=True)
        root = f"{str(self).partition('://')[2]}/"
        return {name.removeprefix(root): info for name, info in infos.items() if not name.endswith("/")}

    def read_bytes(self) -> bytes:
        """Return the content. Raises FileNotFoundError without an object."""
        with store_errors(self), suppress(FileNotFoundError):
            # By default s3fs asks for the size before.
            content: bytes = self._ask("cat_file", max_concurrency=1)
            return content
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))

    def read_text(self, encoding: str | None = "utf-8") -> str:
        return self.read_bytes().decode(encoding or "utf-8")

    def write_bytes(self, data: bytes) -> int:
        with store_errors(self):
            self._ask("pipe_file", data)
        return len(data)

    def write_text(self, data: str, encoding: str | None = None, errors: str | None = None) -> int:
        return self.write_bytes(data.encode())

    def create(self, data: bytes) -> None:
        """Write a new object. Raises FileExistsError, so that one of several writers succeeds."""
        with store_errors(self), suppress(FileExistsError):
            # If-None-Match: * at S3, if_generation_match=0 at GCS.
            self._ask("pipe_file", data, mode="create")
            return
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self))

    def _kind(self) -> str:
        with store_errors(self):
            try:
                return str(self._ask("info")["type"])
            except FileNotFoundError:
                return ""

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._kind())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._kind() == "file"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._kind() == "directory"

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        return answer(self, super().stat)

    def iterdir(self) -> Iterator[Self]:
        with store_errors(self):
            try:
                names = self._ask("ls", detail=False)
            except FileNotFoundError:
                names = []
        yield from (self / PurePath(name).name for name in names if not name.endswith("/"))

    def glob(self, pattern: str) -> Iterator[Self]:
        """Yield the entries of this folder whose names match, also hidden ones."""
        yield from (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def mkdir(self, mode: int | None = None, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder exists if an object is below it."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove an object, which a first attempt may have removed without an answer."""
        with store_errors(self), suppress(FileNotFoundError):
            self._ask("rm_file")

    def rmtree(self, missing_ok: bool = False) -> None:
        with store_errors(self), suppress(FileNotFoundError):
            self._ask("rm", recursive=True)

    def copy_to(self, target: "StorePath") -> None:
        """Copy an object within the store."""
        with store_errors(self):
            self._ask("cp_file", str(target))

    def upload(self, file: Path) -> None:
        """Write the content of a local file, a large one in parts."""
        with store_errors(self):
            answer(self, lambda: self.files.put_file(str(file), str(self)))

    def expanduser(self) -> Self:
        return self

    def absolute(self) -> Self:
        return self

    def resolve(self, strict: bool = False) -> Self:
        return self


@dataclass
class _Listing:
    """The objects of the folder ``root`` by address, None when they may have changed."""

    root: str
    objects: dict[str, dict[str, Any]] | None


class ListedPath(StorePath):
    """A folder whose objects are listed, or a path below it.

    It answers libraries that ask for many files, one by one, without a request. Files that such
    paths write or remove update the listing. Only ``iterdir`` sees files that TensorStore writes
    meanwhile.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        # epath.Path(path) calls this again.
        same = (part._listing for part in parts if isinstance(part, ListedPath))
        self._listing: _Listing = next(same, _Listing("", None))

    def with_listing(self, listing: _Listing) -> Self:
        """Return this new path with the objects of ``listing``."""
        self._listing = listing
        return self

    def with_segments(self, *parts: Any) -> Self:
        return type(self)(*parts).with_listing(self._listing)

    def _objects(self) -> dict[str, dict[str, Any]] | None:
        """Return the listed objects, or None if this path is not below the listed folder."""
        return self._listing.objects if f"{self}/".startswith(f"{self._listing.root}/") else None

    def _kind(self) -> str:
        if (objects := self._objects()) is None:
            return super()._kind()
        if str(self) in objects:
            return "file"
        return "directory" if any(name.startswith(f"{self}/") for name in list(objects)) else ""

    def objects(self) -> dict[str, dict[str, Any]]:
        if (objects := self._objects()) is None:
            return super().objects()
        return {name.removeprefix(f"{self}/"): info for name, info in objects.items() if name.startswith(f"{self}/")}

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        if self._objects() is not None and self.is_dir():
            # A store has no times of folders.
            return StatResult(is_directory=True, length=0, mtime=0)
        return super().stat()

    def write_bytes(self, data: bytes) -> int:
        size = super().write_bytes(data)
        if (objects := self._objects()) is not None:
            objects[str(self)] = {"size": size}
        return size

    def unlink(self, missing_ok: bool = False) -> None:
        objects = self._objects()
        if objects is None or objects.pop(str(self), {}):
            super().unlink()
