"""Repeats what a network or a busy server made fail, and nothing else."""

import errno
import random
import socket
import ssl
import sys
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
# Of one operation, in seconds, before the user is told why nothing happens.
QUIET = 20.0

_FINAL_ERRORS = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)
_FINAL_NUMBERS = (errno.EINVAL, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOSYS, errno.ENAMETOOLONG)
_NETWORK_ERRORS = (socket.gaierror, ssl.SSLError)


def is_transient(error: BaseException) -> bool:
    """Whether the same may succeed a little later: 5xx, too many requests, a lost connection, a time-out."""
    if isinstance(error, _NETWORK_ERRORS):
        return not isinstance(error, ssl.SSLCertVerificationError)
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        # gcsfs raises a plain OSError where access is denied.
        is_refused = isinstance(error, _FINAL_ERRORS) or str(error).startswith("Forbidden")
        return not is_refused and error.errno not in _FINAL_NUMBERS
    if not is_of_a_library(error):
        return False
    code = getattr(error, "code", getattr(error, "status", None))
    is_refused = isinstance(code, int) and 400 <= code < 500 and code not in (408, 429)
    return not is_refused and not any(word in type(error).__name__ for word in ("Credential", "Param", "Profile"))


def is_of_a_library(error: BaseException) -> bool:
    """Whether a library raised its own kind of error: those of object stores have no common type."""
    return type(error).__module__.partition(".")[0] not in ("builtins", "transformer_jax")


def retried(operation: Callable[[], Result], what: str, patience: float) -> Result:
    """What ``operation`` returns; a transient error is tried again for ``patience`` seconds, then raised like any other.

    Pauses double and are drawn at random below that, so that many processes do not come back at once.
    """
    began, pause, is_said = time.monotonic(), FIRST_PAUSE, False
    while True:
        try:
            return operation()
        except Exception as error:
            waited = time.monotonic() - began
            if not is_transient(error) or waited >= patience:
                raise
            if waited > QUIET and not is_said:
                print(f"{what}: {reason_of(error)}; tried again for {patience:.0f} s", file=sys.stderr, flush=True)
                is_said = True
        time.sleep(min(random.uniform(pause / 2, pause), max(0.0, began + patience - time.monotonic())))
        pause = min(2 * pause, LONGEST_PAUSE)


def reason_of(error: BaseException) -> str:
    """One line on an error of whatever library."""
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return text.strip().split("\n")[0][:200] or type(error).__name__
