"""A lock where the file system has none (some Lustre and NFS mounts): a file that its holder keeps changing.

Clocks of different hosts are never compared: a lease is stale when another process watched it for ``SECONDS`` and it did not
change. Of two that take over a stale one the last to write has it, and both look again before they begin.
"""

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transformer_jax.config import ConfigError
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.background import in_background

SECONDS = 60.0
BEATS = 6


@contextmanager
def leased(path: Path, problem: ConfigError, seconds: float = SECONDS) -> Iterator[None]:
    """Raises ``problem`` while another process holds the lease; holds it until the end, and asks this process to stop if it
    is lost, or cannot be renewed for half of ``seconds``, while no other can take it yet.
    """
    owner = uuid.uuid4().hex
    _take(path, owner, problem, seconds)

    def beat(over: threading.Event) -> None:
        count, renewed, pause = 0, time.monotonic(), seconds / BEATS
        while not over.wait(pause):
            count += 1
            try:
                if _owner(path) != owner:
                    _end_this_process(f"{path}: another process took the lease")
                    return
                write_whole(path, json.dumps([owner, count]))
                renewed, pause = time.monotonic(), seconds / BEATS
            except OSError as error:
                # A full disk, a mount that does not answer.
                if time.monotonic() - renewed > seconds / 2:
                    _end_this_process(f"{path}: the lease cannot be renewed ({error.strerror})")
                    return
                pause = seconds / BEATS / 4

    try:
        with in_background(beat, "lease"):
            yield
    finally:
        with suppress(OSError):
            if _owner(path) == owner:
                path.unlink(missing_ok=True)


def _end_this_process(problem: str) -> None:
    """Asks this process to save and end."""
    # Imported here because it imports JAX, which a command that only looks at a run does without.
    from transformer_jax.runtime.distributed import say

    say(f"{problem}; this process saves and ends", sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)


def _take(path: Path, owner: str, problem: ConfigError, seconds: float) -> None:
    first = json.dumps([owner, 0])
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w") as file:
            file.write(first)
        return
    except FileExistsError:
        before = _content(path)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(seconds / BEATS / 4)
        if _content(path) != before:
            raise problem from None
    write_whole(path, first)
    time.sleep(seconds / BEATS)
    if _owner(path) != owner:
        raise problem


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _owner(path: Path) -> str:
    content = _content(path)
    return content[2:34] if content.startswith('["') else ""
