"""Starts, watches and stops the workers of one host."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from transformer_jax.tools.sweeps.devices import Environment

POLL_SECONDS = 1.0
STOPPING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# Of prctl(2).
PR_SET_PDEATHSIG = 1


def run_workers(
    command: Sequence[str], environments: Sequence[Environment], logs: Path, look: Callable[[], None]
) -> list[int]:
    """Starts the command in each environment, calls ``look`` every second until all have ended; returns their exit statuses.

    What they print goes to ``logs``, a file each. SIGINT, SIGTERM and SIGHUP are passed on, and the workers, which save
    first, are awaited. Workers must call ``die_with_parent``, since this process can be killed.
    """
    with _log_files(logs, len(environments)) as files:
        # In separate process groups: a terminal would send Ctrl-C to them too, and two signals mean "at once".
        workers = [
            subprocess.Popen(
                command,
                env=os.environ | environment,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
            for environment, file in zip(environments, files, strict=True)
        ]
        with _passed_on(workers):
            try:
                while any(worker.poll() is None for worker in workers):
                    look()
                    time.sleep(POLL_SECONDS)
            finally:
                for worker in workers:
                    worker.terminate()
                statuses = [worker.wait() for worker in workers]
        return statuses


def die_with_parent() -> None:
    """Makes Linux send this process SIGTERM when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def log_file(logs: Path, number: int) -> Path:
    """Log file of worker ``number`` of this host."""
    return logs / f"{os.uname().nodename}-{number}.log"


@contextmanager
def _log_files(logs: Path, count: int) -> Iterator[list[IO[bytes]]]:
    logs.mkdir(parents=True, exist_ok=True)
    files: list[IO[bytes]] = []
    try:
        files.extend(log_file(logs, number).open("ab") for number in range(count))
        yield files
    finally:
        for file in files:
            file.close()


@contextmanager
def _passed_on(workers: Sequence[subprocess.Popen]) -> Iterator[None]:
    """Passes on to the workers a signal that asks this process to stop."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        print("stopping: the workers save what they have; the same command resumes", file=sys.stderr)
        for worker in workers:
            if worker.poll() is None:
                # A closed terminal is a reason to save too.
                worker.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

    previous = {number: signal.signal(number, pass_on) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
