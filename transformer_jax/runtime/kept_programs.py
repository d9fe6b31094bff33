"""Executables that are kept on disk: the next process neither traces, nor lowers, nor compiles them again.

Each file in ``programs``, in the folder of JAX's compilation cache, is one executable on one CPU. Its first line has everything
that the executable depends on: settings, this package, versions, processor, flags, shapes. Where anything differs the file is not
used; a process with plugins uses none. All files may be deleted, and ``TRANSFORMER_JAX_PROGRAMS=none`` keeps none. Loading one runs its machine code, as for the compilation cache: both are only for
folders that nobody else can write, and a run directory, which people share, has none.
"""

import hashlib
import json
import os
import platform
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer_jax.array_types import Array, PyTree
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.paths import is_address
from transformer_jax.registry.plugins import is_extended
from transformer_jax.runtime.startup import available_cores

FOLDER = "programs"
SWITCH = "TRANSFORMER_JAX_PROGRAMS"
PACKAGE = Path(__file__).parents[1]
FLAGS = ("XLA_FLAGS", "JAX_PLATFORMS")
# Settings of JAX that change no program.
IGNORED = ("jax_compilation_cache_dir", "jax_persistent_cache", "jax_log", "jax_logging_level")

Run = Callable[[Sequence[Array]], list[Array]]
"""From the leaves of all arguments to the leaves of the result."""


class ProgramStore:
    """The kept executables of one model on one CPU; ``settings``, JSON: everything else that its programs depend on."""

    def __init__(self, settings: Any, device: Any) -> None:
        self.device, self._settings = device, settings

    @property
    def folder(self) -> Path | None:
        """The folder of the files; None where JAX keeps no compiled programs, or runs none."""
        config, cache_folder = jax.config, jax.config.jax_compilation_cache_dir
        is_off = config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs
        is_kept = config.jax_enable_compilation_cache and cache_folder and not is_address(cache_folder)
        if is_off or not is_kept or is_extended() or os.environ.get(SWITCH) == "none":
            return None
        return Path(cache_folder) / FOLDER

    def path(self, folder: Path, program: Sequence[Any]) -> tuple[Path, bytes]:
        """Return the file of a program, by its name, structures and shapes, and the first line of that file."""
        key = [*program, self._settings, _environment(), _processor(self.device), _jax_settings()]
        line = json.dumps(key, default=repr, sort_keys=True).encode() + b"\n"
        return folder / hashlib.sha256(line).hexdigest(), line

    def load(self, path: Path, line: bytes) -> Any:
        """Return an executable; None where there is no such file, or it is damaged or of another program."""
        with suppress(OSError, RuntimeError):
            content = path.read_bytes()
            digest, code = content[len(line) :][:32], content[len(line) + 32 :]
            if content.startswith(line) and hashlib.sha256(code).digest() == digest:
                return self.device.client.deserialize_executable(code, [self.device], None)
        return None

    def save(self, path: Path, line: bytes, executable: Any) -> None:
        """Write an executable; without it the next process compiles again."""
        with suppress(OSError, RuntimeError):
            code = executable.serialize()
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, line + hashlib.sha256(code).digest() + code)


class Program:
    """A compiled function, called as ``program(*arguments, static=..., key=...)``; returns the leaves of its result.

    ``function(static, *arguments)``: ``static()`` is evaluated only where the function is traced, and ``key``, which follows it,
    stands for it in the key of a kept executable. With a ``store`` executables are kept there, except those that call back into
    Python, and those with typed keys among the arguments.
    """

    def __init__(
        self,
        function: Callable[..., PyTree],
        store: ProgramStore | None = None,
        *,
        donated: Sequence[int] = (),
        out_shardings: Any = None,
    ) -> None:
        self._name, self._store = function.__name__, store
        self._run: dict[Hashable, Run | None] = {}
        self._locks: dict[Hashable, threading.Lock] = {}
        options = {"out_shardings": out_shardings} if out_shardings is not None else {}
        # A kept executable takes all leaves.
        self.compiled = jax.jit(
            function,
            static_argnums=0,
            donate_argnums=[1 + index for index in donated],
            keep_unused=store is not None,
            **options,
        )

    def __call__(self, *arguments: PyTree, static: Callable[[], Hashable], key: Hashable = ()) -> list[Array]:
        folder = self._store.folder if self._store else None
        if folder is not None:
            leaves, structure = jax.tree.flatten(arguments)
            shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
            known_by = key, structure, shapes, folder, _jax_settings()
            with self._locks.setdefault(known_by, threading.Lock()):
                if known_by not in self._run:
                    self._run[known_by] = self._kept(folder, key, arguments, static)
            if run := self._run[known_by]:
                return run(leaves)
        leaves = jax.tree.leaves(self.compiled(static(), *arguments))
        return leaves

    def _kept(self, folder: Path, key: Hashable, arguments: tuple, static: Callable[[], Hashable]) -> Run | None:
        """The executable from the store, or compiled and added to it; None if it cannot be kept."""
        store, (leaves, structure) = self._store, jax.tree.flatten(arguments)
        if store is None or any(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended) for leaf in leaves):
            return None
        shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]
        path, line = store.path(folder, (self._name, repr(key), str(structure), shapes))
        executable = store.load(path, line)
        if executable is None:
            lowered = self.compiled.lower(static(), *arguments)
            executable = lowered.compile().runtime_executable()
            # An executable with a callback has its address in this process.
            if "callback" in lowered.as_text() or len(executable.get_parameter_layouts()) != len(leaves):
                return None
            store.save(path, line, executable)
        device = store.device

        def run(leaves: Sequence[Array]) -> list[Array]:
            placed = [leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf, device) for leaf in leaves]
            return [shards[0] for shards in executable.execute_sharded(placed).disassemble_into_single_device_arrays()]

        return run


def _jax_settings() -> tuple[tuple[str, Any], ...]:
    """The settings of JAX in this thread."""
    return tuple(each for each in jax.config.values.items() if not each[0].startswith(IGNORED))


@cache
def _processor(device: Any) -> list[Any]:
    """The kind of a device, and the instructions of the processor as Linux names them."""
    cpu_info = Path("/proc/cpuinfo")
    first = cpu_info.read_text(encoding="utf-8").partition("\n\n")[0] if cpu_info.is_file() else ""
    lines = [line for line in first.splitlines() if line.startswith(("model name", "flags", "Features", "CPU part"))]
    client = device.client
    return [client.platform, client.platform_version, device.id, platform.machine(), available_cores(), lines]


@cache
def _environment() -> list[Any]:
    """This package, versions of libraries, and flags."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(file.relative_to(PACKAGE)).encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    versions = [(name, metadata.version(name)) for name in ("jax", "jaxlib", "flax", "numpy")]
    return [digest.hexdigest(), platform.python_version(), versions, [os.environ.get(name, "") for name in FLAGS]]
