"""What every test runs under: eight fake CPU devices, checked shapes and types, no silent
broadcasting of ranks."""

import dataclasses
import functools
import gc
import inspect
import os
import platform
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def cpu_key() -> str:
    """Compiled programs are of use only to processors with the same instructions."""
    info = Path("/proc/cpuinfo")
    flags = [line for line in info.read_text().splitlines() if line.startswith("flags")][:1] if info.exists() else []
    return f"{platform.machine()}-{zlib.crc32(repr(flags).encode()):08x}"


# Python's bytecode is kept beside compiled programs, also where the environment forbids it: a
# process that compiles the sources of JAX and TensorFlow takes 12 CPU seconds longer.
sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".cache" / "bytecode")
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
sys.dont_write_bytecode = False
# Before JAX is imported, here and in the processes that tests start. Accelerators stay free: the
# tests are about meaning.
XLA_FLAGS = "--xla_force_host_platform_device_count=8"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Compiling takes most of the time here, and what is computed is tiny.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
# Compiled programs are shared by all workers and the processes that they start, and kept from run
# to run; `make clean` removes them. A process that is to be killed goes without: see
# run_steps.NO_CACHE.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "tests" / cpu_key()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Kept programs would hide what a test changed in the package; tests/runtime/test_kept_programs.py
# keeps some.
os.environ["TRANSFORMER_JAX_PROGRAMS"] = "none"

import jaxtyping

make_checked = jaxtyping.jaxtyped


def checked_when_called(function: Any = None, *, typechecker: Callable) -> Any:
    """As ``jaxtyped``, but checks are made at the first call that is checked: most functions, and
    all that a function defines at each of its calls, never see one."""
    if function is None:
        return functools.partial(checked_when_called, typechecker=typechecker)
    if inspect.isclass(function):
        # The one that a class inherits is wrapped already.
        if dataclasses.is_dataclass(function) and not hasattr(function.__init__, "__wrapped__"):
            function.__init__ = checked_when_called(function.__init__, typechecker=typechecker)
        return function
    checked = None

    @functools.wraps(function)
    def either(*arguments: Any, **options: Any) -> Any:
        nonlocal checked
        if jaxtyping.config.jaxtyping_disable:
            return function(*arguments, **options)
        if checked is None:
            checked = make_checked(function, typechecker=typechecker)
        return checked(*arguments, **options)

    return either


# Before the package is imported: annotations are checked at a call, shapes included, where
# `annotations_checked` turns it on.
jaxtyping.jaxtyped = checked_when_called
jaxtyping.install_import_hook("transformer_jax", "beartype.beartype")
jaxtyping.config.update("jaxtyping_disable", True)

from contextlib import suppress

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

gc.freeze()
# Tracing makes many objects; their cycles are collected after every file, see `forget_programs`.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of whole runs first: started last, the longest of them would keep one core busy
    alone."""
    items.sort(key=lambda item: "runs" not in item.path.parts)


# Checking every annotation at every call takes two fifths of the time of tracing. So it is done
# where the arrays are made: in the tests of these folders, and in those elsewhere that ask for it
# (`checked`), among them a run of each kind of model.
CHECKED = {"layers", "decoding", "training"}


@pytest.fixture(scope="module", autouse=True)
def is_folder_checked(request: pytest.FixtureRequest, plugins_of_this_file):
    """Turns on the checks of shapes and types for the fixtures of one file, when the package is
    imported."""
    is_checked = not CHECKED.isdisjoint(request.path.relative_to(ROOT).parts)
    jaxtyping.config.update("jaxtyping_disable", not is_checked)
    yield is_checked
    jaxtyping.config.update("jaxtyping_disable", True)


@pytest.fixture(autouse=True)
def annotations_checked(request: pytest.FixtureRequest, is_folder_checked: bool):
    """And for one test."""
    if is_folder_checked or "checked" not in request.keywords:
        yield
        return
    jaxtyping.config.update("jaxtyping_disable", False)
    yield
    jaxtyping.config.update("jaxtyping_disable", True)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out tests of the core that look through a tool, where the tool is absent."""
    if collection_path.suffix != ".py":
        return None
    tools = re.findall(
        r"^from transformer_jax\.tools\.(\w+)", collection_path.read_text(encoding="utf-8"), re.MULTILINE
    )
    from transformer_jax.registry.index import is_usable

    return None if all(map(is_usable, tools)) else True


@pytest.fixture(scope="module", autouse=True)
def plugins_of_this_file():
    """What the tests of a file register is gone after them."""
    from transformer_jax.registry import plugins, python_files
    from transformer_jax.registry.index import own_parts

    plugins.load_installed_plugins()
    registered = lambda: {(kind, name) for kind, names in plugins._REGISTERED.items() for name in names}  # noqa: E731
    before, files = registered(), dict(python_files._LOADED)
    yield
    for kind, name in registered() - before - own_parts().keys():
        # A module of the package registers its rows once, when it is imported.
        if kind == "sharding":
            continue
        del plugins._REGISTERED[kind][name]
        plugins._SETTINGS.pop((kind, name), None)
    python_files._LOADED.clear()
    python_files._LOADED.update(files)


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """The programs of one file serve no other: kept, they fill memory, and the collector visits
    them again and again.

    What is left after that are modules that tests have imported; frozen, they are not visited after
    every further file.
    """
    yield
    jax.clear_caches()
    gc.collect()
    gc.freeze()


@pytest.fixture
def bucket(monkeypatch):
    """An address in a local server that speaks S3; skips the test where moto and s3fs are not
    installed."""
    s3fs, moto = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    # Cached instances know the server of another test.
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    with suppress(FileExistsError):
        files.mkdir("bucket")
    yield "s3://bucket/run"
    # moto keeps buckets when the server stops.
    files.rm("bucket", recursive=True)
    server.stop()
