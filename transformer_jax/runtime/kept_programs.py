"""Executables kept on disk, which the next process does not trace, lower or compile again.

The folder ``programs``, in the folder of JAX's compilation cache, has two kinds of files.
Executables are named by a digest of the text of their program. A second file, named by a digest of
all that a program follows from (settings, this package, versions, processor, flags, shapes), has
the name of the executable. So after a change of the package that leaves a program as it was, only
tracing is repeated. A file whose first line differs in anything is not used. Only a command is sure
of its code: a notebook, a process with plugins, and a process whose files of this package were
edited after it started use none.

All files may be deleted at any time, and nothing else deletes them.
``TRANSFORMER_JAX_PROGRAMS=none`` keeps none. Loading an executable runs its machine code, as in the
compilation cache: both folders are for people who may run programs as this user. So a run
directory, which is shared, has none, and files of users other than this one and root, or that
anybody may write, are not read.
"""

import hashlib
import json
import os
import platform
import stat
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, PyTree
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.paths import is_address
from transformer_jax.registry.plugins import is_extended
from transformer_jax.runtime.startup import available_cores

FOLDER = "programs"
PROGRAMS_SWITCH = "TRANSFORMER_JAX_PROGRAMS"
ROOT = 0
FLAGS = ("XLA_FLAGS", "JAX_PLATFORMS")
# Settings of JAX that change no program.
IGNORED = ("jax_compilation_cache_dir", "jax_persistent_cache", "jax_log", "jax_logging_level")
# A key in the description of an array, unlike any name of a module.
SHAPE = "shape of"

Run = Callable[[Sequence[Array]], list[Array]]
"""From the leaves of all arguments to the leaves of the result."""


class ProgramStore:
    """The kept programs of one model on one CPU.

    ``settings``, which JSON can write, determine the programs.
    """

    def __init__(self, settings: Any, device: Any) -> None:
        self.device, self._settings = device, settings

    def with_settings(self, more: Any) -> "ProgramStore":
        """Return a store of programs that ``more``, which JSON can write, determines too."""
        return ProgramStore([self._settings, more], self.device)

    @property
    def folder(self) -> Path | None:
        """The folder of the files, None if none are kept."""
        config, cache_folder = jax.config, jax.config.jax_compilation_cache_dir
        is_off = config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs
        is_kept = config.jax_enable_compilation_cache and cache_folder and not is_address(cache_folder)
        if is_off or not is_kept or os.environ.get(PROGRAMS_SWITCH) == "none" or is_extended() or not _package():
            return None
        return Path(cache_folder) / FOLDER

    def read(self, key: Sequence[Any], *, is_text: bool = False) -> bytes | None:
        """Return the content of a file, or None if it is missing, damaged or of another key."""
        if (folder := self.folder) is None:
            return None
        name, line = self._named(key, is_text)
        with suppress(OSError), (folder / name).open("rb") as file:
            status = os.fstat(file.fileno())
            # Machine code of somebody else.
            if status.st_uid not in (os.geteuid(), ROOT) or status.st_mode & stat.S_IWOTH:
                return None
            content = file.read()
            digest, body = content[len(line) :][:32], content[len(line) + 32 :]
            return body if content.startswith(line) and hashlib.sha256(body).digest() == digest else None
        return None

    def write(self, key: Sequence[Any], body: bytes, *, is_text: bool = False) -> None:
        """Write a file. Without it the next process compiles again."""
        if (folder := self.folder) is None:
            return
        name, line = self._named(key, is_text)
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / name, line + hashlib.sha256(body).digest() + body)

    def _named(self, key: Sequence[Any], is_text: bool) -> tuple[str, bytes]:
        """Return name and first line of the file of ``key``.

        ``is_text``: ``key`` has the program's text.
        """
        follows_from = [] if is_text else [self._settings, _package()]
        everything = [*key, follows_from, _environment(), _processor(self.device), _jax_settings()]
        line = json.dumps(everything, default=repr, sort_keys=True).encode() + b"\n"
        return hashlib.sha256(line).hexdigest(), line

    def shapes(self, compute: Callable[[], PyTree]) -> PyTree:
        """Return shapes and types of parameters: from the store, or computed and added to it."""
        if body := self.read(("shapes",)):
            return json.loads(
                body, object_hook=lambda d: jax.ShapeDtypeStruct(d[SHAPE], d["dtype"]) if SHAPE in d else d
            )
        shapes = compute()
        described = jax.tree.map(lambda leaf: {SHAPE: leaf.shape, "dtype": str(leaf.dtype)}, shapes)
        self.write(("shapes",), json.dumps(described).encode())
        return shapes


class Program:
    """A compiled function, called as ``program(*arguments, static=..., key=...)``.

    It returns the leaves of its result. ``function(static, *arguments)`` gets the value of
    ``static()``. If the program is kept, ``static()`` is not called: the key of a kept program has
    ``key`` instead, which must determine it. With a ``store`` programs are kept there, except those
    that call back into Python, or have typed keys among their arguments.
    """

    def __init__(
        self,
        function: Callable[..., PyTree],
        store: ProgramStore | None = None,
        *,
        donated: Sequence[int] = (),
        out_shardings: Any = None,
    ) -> None:
        options: dict[str, Any] = {"static_argnums": 0, "donate_argnums": [1 + index for index in donated]}
        if out_shardings is not None:
            options["out_shardings"] = out_shardings
        self.compiled = jax.jit(function, **options)
        self._function, self._options, self._store = function, options, store
        self._runs: dict[Hashable, Run | None] = {}
        self._locks: dict[Hashable, threading.Lock] = {}

    def __call__(self, *arguments: PyTree, static: Callable[[], Hashable], key: Hashable = ()) -> list[Array]:
        if self._store is not None and self._store.folder is not None:
            leaves, structure = jax.tree.flatten(arguments)
            shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
            called = key, structure, shapes, _jax_settings()
            with self._locks.setdefault(called, threading.Lock()):
                if called not in self._runs:
                    self._runs[called] = self._kept(self._store, key, arguments, static)
            if run := self._runs[called]:
                return run(leaves)
        result: list[Array] = jax.tree.leaves(self.compiled(static(), *arguments))
        return result

    def _kept(self, store: ProgramStore, key: Hashable, arguments: tuple, static: Callable[[], Hashable]) -> Run | None:
        """Return the executable from the store, or compiled and added to it, or None."""
        leaves, structure = jax.tree.flatten(arguments)
        if any(jnp.issubdtype(leaf.dtype, jax.dtypes.extended) for leaf in leaves):
            return None
        shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]
        origin = self._function.__name__, str(self._options), repr(key), str(structure), shapes
        if (text_digest := store.read(origin)) and (kept := _loaded(store, text_digest.decode())):
            return _run_of(kept, store.device)

        def function(*arguments: Any) -> PyTree:
            return self._function(*arguments)

        # XLA cannot write an executable that it read. A name unknown to JAX's cache makes it
        # compile. A kept executable takes all leaves.
        function.__name__ = f"{self._function.__name__}_{uuid.uuid4().hex}"
        lowered = jax.jit(function, keep_unused=True, **self._options).lower(static(), *arguments)
        text = lowered.as_text().replace(function.__name__, self._function.__name__)
        # The executable may have addresses of this process, such as of a callback into Python.
        if "custom_call" in text:
            return None
        digest = hashlib.sha256(text.encode()).hexdigest()
        executable: Any = _loaded(store, digest)
        if executable is None:
            executable = lowered.compile().runtime_executable()
            # No other process looks for this name.
            for unused in Path(jax.config.jax_compilation_cache_dir).glob(f"*{function.__name__}*"):
                unused.unlink(missing_ok=True)
            if len(executable.get_parameter_layouts()) != len(leaves):
                return None
            store.write((digest,), executable.serialize(), is_text=True)
        store.write(origin, digest.encode())
        return _run_of(executable, store.device)


def _loaded(store: ProgramStore, text_digest: str) -> Any:
    """Return the executable of a text, or None."""
    code = store.read((text_digest,), is_text=True)
    with suppress(RuntimeError):
        return code and store.device.client.deserialize_executable(code, [store.device], None)


def _run_of(executable: Any, device: Any) -> Run:
    def run(leaves: Sequence[Array]) -> list[Array]:
        placed = [leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf, device) for leaf in leaves]
        return [shards[0] for shards in executable.execute_sharded(placed).disassemble_into_single_device_arrays()]

    return run


def _jax_settings() -> tuple[tuple[str, Any], ...]:
    """Return the settings of JAX in this thread."""
    return tuple(item for item in jax.config.values.items() if not item[0].startswith(IGNORED))


@cache
def _processor(device: Any) -> list[Any]:
    """Return the client of a device, and the processor with its instructions."""
    cpu_info, client = Path("/proc/cpuinfo"), device.client
    first = cpu_info.read_text(encoding="utf-8").partition("\n\n")[0] if cpu_info.is_file() else ""
    lines = [line for line in first.splitlines() if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return [client.platform, client.platform_version, device.id, platform.machine(), available_cores(), lines]


@cache
def _environment() -> list[Any]:
    """Return the versions of libraries, and flags."""
    versions = [(name, metadata.version(name)) for name in ("jax", "jaxlib", "flax", "numpy")]
    return [platform.python_version(), versions, [os.environ.get(name, "") for name in FLAGS]]


@cache
def _package() -> str:
    """Return the digest of this package, or "" if this process may have imported other files."""
    return digest_of_code(Path(__file__).parents[1], _began())


def digest_of_code(folder: Path, began: float) -> str:
    """Return the digest of the Python files in a folder, or "" if one changed after ``began``."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        if file.stat().st_mtime >= began:
            return ""
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _began() -> float:
    """Return the time at which this process started (proc(5)), or 0."""
    with suppress(OSError):
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    return 0.0
