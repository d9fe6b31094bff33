"""The C library's allocator, configured to keep the memory that a training step frees.

JAX on a CPU allocates the buffers of a step as one large block, which glibc would return to the system after every step and
fetch again, page by page, in the next: 10 to 16 % of the time of a run (experiments/benchmarks, ``allocator.py``).
"""

import ctypes
import os
import sys
from pathlib import Path

SWITCH = "TRANSFORMER_JAX_MALLOC"
# Parameters of mallopt(3), from malloc.h, with the values that keep all memory in one arena.
KEEP_MEMORY = {
    "M_ARENA_MAX": (-8, 1),
    "M_MMAP_MAX": (-4, 0),
    "M_TRIM_THRESHOLD": (-1, -1),
}
# Device files of NVIDIA and AMD GPUs and of TPUs.
DEVICE_FILES = Path("/dev")
ACCELERATORS = ("nvidiactl", "kfd", "accel*", "vfio/[0-9]*")


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory, and returns whether it does; call it before any thread starts.

    Does nothing outside Linux, with another C library, where there is an accelerator that JAX may use, or with
    ``TRANSFORMER_JAX_MALLOC=default``. Processes that this one starts decide for themselves.
    """
    if os.environ.get(SWITCH) == "default" or not sys.platform.startswith("linux") or _may_use_accelerator():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(parameter, value) == 1 for parameter, value in KEEP_MEMORY.values())


def _may_use_accelerator() -> bool:
    platforms = os.environ.get("JAX_PLATFORMS", "")
    return platforms != "cpu" and (bool(platforms) or any(any(DEVICE_FILES.glob(pattern)) for pattern in ACCELERATORS))
