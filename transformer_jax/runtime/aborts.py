"""A last line after the C++ frames with which JAX ends the survivors of a process that died."""

import ctypes
import os
import signal

# EX_TEMPFAIL of sysexits.h: a scheduler starts the process again, and the run resumes.
LOST_ANOTHER = 75


def explain_aborts(message: str) -> None:
    """From now on SIGABRT prints ``message`` and ends the process with status 75.

    ``abort`` runs in a thread of C++, where a handler of Python's would never run (signal(2)).
    """
    line = f"{message}\n".encode()

    def say_and_end(number: int) -> None:
        os.write(2, line)
        os._exit(LOST_ANOTHER)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(say_and_end)
    _KEPT.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)


def leave_aborts() -> None:
    """From now on SIGABRT ends the process as it did before ``explain_aborts``."""
    signal.signal(signal.SIGABRT, signal.SIG_DFL)


# A handler that nothing refers to is freed.
_KEPT: list[object] = []
