"""Setup of a process before JAX starts: memory allocator, platforms, name of the command."""

import ctypes
import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

NAME = "transformer-jax"
SWITCH = "TRANSFORMER_JAX_MALLOC"
# Parameters of mallopt(3), from malloc.h, with the values that keep all memory in one arena.
KEEP_MEMORY = {"M_ARENA_MAX": (-8, 1), "M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1)}
# Device files of TPUs and of NVIDIA and AMD GPUs.
ACCELERATORS = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*", "nvidiactl", "kfd")
DEVICES = Path("/dev")
PLUGINS = ("libtpu", "jax_cuda13_plugin", "jax_cuda12_plugin")


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory, and return whether it does. Call it before any thread starts.

    JAX on a CPU allocates the buffers of a step as one large block. glibc would return it to the
    system after every step and fetch it again, page by page: 10 to 16 % of the time of a run
    (experiments/benchmarks). Does nothing outside Linux, with another C library, if JAX may use an
    accelerator, or with ``TRANSFORMER_JAX_MALLOC=default``. Child processes decide for themselves.
    """
    platforms = os.environ.get("JAX_PLATFORMS", "")
    may_use_accelerator = platforms != "cpu" and (bool(platforms) or _has_accelerator(DEVICES))
    if os.environ.get(SWITCH) == "default" or not sys.platform.startswith("linux") or may_use_accelerator:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(parameter, value) == 1 for parameter, value in KEEP_MEMORY.values())


def skip_missing_accelerators(devices: Path = DEVICES) -> None:
    """Set ``JAX_PLATFORMS=cpu`` if there is no accelerator, so that JAX does not search for one.

    Does nothing if ``JAX_PLATFORMS`` is set.
    """
    if (
        "JAX_PLATFORMS" not in os.environ
        and any(find_spec(plugin) for plugin in PLUGINS)
        and not _has_accelerator(devices)
    ):
        os.environ["JAX_PLATFORMS"] = "cpu"


def _has_accelerator(devices: Path) -> bool:
    return any(any(devices.glob(pattern)) for pattern in ACCELERATORS)


def program_name() -> str:
    """Return the command of this package for printed examples, which work when pasted.

    ``transformer-jax`` if the shell resolves it to this installation, else the path of the command.
    """
    started = Path(sys.argv[0])
    if started.name != NAME:
        return NAME
    on_path = shutil.which(NAME)
    return NAME if on_path and Path(on_path).resolve() == started.resolve() else shlex.quote(str(started))


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
