"""An object store in memory, in place of ``s3://``, for tests that read and write no arrays."""

from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class MemoryS3(MemoryFileSystem):
    """Names are ``BUCKET/FOLDER/FILE``; ``requests`` has the method of each."""

    protocol = ("s3",)
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    requests: ClassVar[list[str]] = []
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return super()._strip_protocol(str(path).removeprefix("s3://"))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self.requests.append("GET")
        return super().cat_file(path, start, end)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self.requests.append("PUT")
        super().pipe_file(path, value, mode=mode)

    def put_file(self, lpath: Any, rpath: Any, **options: Any) -> None:
        self.requests.append("PUT")
        super().put_file(lpath, rpath, **options)

    def info(self, path: str, **options: Any) -> dict:
        self.requests.append("HEAD")
        return super().info(path)

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any) -> Any:
        self.requests.append("LIST")
        # Without the counts of the methods that it calls.
        found = {name: entry for name, entry in self.store.items() if name.startswith(f"{self._strip_protocol(path)}/")}
        return {name[1:]: {"name": name[1:], "size": len(entry.getbuffer())} for name, entry in found.items()}

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self.requests.append("LIST")
        return super().ls(path, detail=detail)


def use_memory(patch: Any) -> MemoryS3:
    """Make ``s3://`` an empty store in memory until ``patch`` is undone."""
    for name, value in {"store": {}, "pseudo_dirs": [""], "requests": []}.items():
        patch.setattr(MemoryS3, name, value)
    files = MemoryS3()
    original = fsspec.filesystem
    patch.setattr(
        fsspec, "filesystem", lambda scheme, **options: files if scheme == "s3" else original(scheme, **options)
    )
    return files
