"""Memory and disk of this host that a run uses, for its log: what grows or shrinks unseen until a process is killed."""

import os
import resource
import shutil
import sys
from pathlib import Path


def host_usage(folder: Path) -> dict[str, float]:
    """``host/memory_gb``: memory of this process; ``host/free_disk_gb``: free for the file system of ``folder``; 10^9 bytes."""
    return {"host/memory_gb": _memory_bytes() / 1e9, "host/free_disk_gb": shutil.disk_usage(folder).free / 1e9}


def _memory_bytes() -> int:
    """Resident set (proc(5)); where there is no /proc its maximum so far (getrusage(2))."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return pages * os.sysconf("SC_PAGE_SIZE")
