"""Traces kept on disk, as StableHLO: a program that one process traced need not be traced by the next."""

import contextlib
import json
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

import jax
from jax import export

from transformer_jax.config.checks import is_address
from transformer_jax.runtime.atomic_files import write_whole

PACKAGE = Path(__file__).parents[1]


def jit_with_kept_traces(identity: str) -> Callable[..., Any]:
    """``jax.jit`` that keeps each trace beside JAX's compilation cache, if that is on; for one device.

    ``identity``: everything that determines functions of this package with the same name and arguments, such as the settings
    of a model. The sources of the package, libraries, JAX's settings and the device are added to it. Arguments and results are
    trees of tuples, lists and dictionaries; static arguments are given by name.
    """
    folder = jax.config.jax_compilation_cache_dir
    if not folder or is_address(folder):
        return jax.jit
    lock = Lock()

    def jit(function: Callable[..., Any], *, donate_argnums: tuple[int, ...] | int = (), **options: Any) -> Any:
        traced = jax.jit(function, donate_argnums=donate_argnums, **options)
        programs: dict[tuple, Callable[..., Any]] = {}

        def call(*arguments: Any, **static: Any) -> Any:
            leaves, structure = jax.tree.flatten(arguments)
            key = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves), tuple(sorted(static.items()))
            if key not in programs:
                with lock:
                    name = sha256(f"{_environment()} {identity} {function.__name__} {key}".encode()).hexdigest()
                    exported = _exported(Path(folder) / "traces" / name, traced, arguments, static)
                    programs[key] = jax.jit(exported.call, donate_argnums=donate_argnums)
            return programs[key](*arguments)

        return call

    return jit


def _exported(file: Path, traced: Any, arguments: tuple, static: dict[str, Any]) -> export.Exported:
    """The program in ``file``, which is written if it is missing and can be."""
    if file.exists():
        return export.deserialize(bytearray(file.read_bytes()))
    exported = export.export(traced)(*arguments, **static)
    with contextlib.suppress(OSError):
        write_whole(file, bytes(exported.serialize()))
    return exported


@cache
def _environment() -> str:
    """The sources of the package, versions of libraries, JAX's settings and the device, all of which determine a trace."""
    sources = sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        sources.update(file.read_bytes())
    libraries = {name: version(name) for name in ("jax", "jaxlib", "flax")}
    settings = {name: str(value) for name, value in jax.config.values.items() if "cache" not in name}
    device = jax.devices()[0]
    return json.dumps([sources.hexdigest(), libraries, settings, device.platform, device.device_kind])
