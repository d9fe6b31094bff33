"""Commands in this process, with a limit of time, and in processes of their own that are signaled
and awaited."""

import contextlib
import faulthandler
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import weakref
from pathlib import Path

from transformer_jax.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
INJECTED = Path(__file__).resolve().parent / "injected"
POLL_SECONDS = 0.01
SECONDS = 600.0
"""Beyond it a command counts as hanging."""


class Hanging(BaseException):
    """A command did not end in time; the message is the end of its output."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raises Hanging in the block after ``seconds``; if that has no effect, ends the process and
    prints its stacks."""

    def raise_hanging(number: int, frame: object) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, raise_hanging)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_command_here(arguments: list[str], seconds: float = SECONDS) -> tuple[int, str]:
    """Return the exit status and what was printed; an exception that escapes is a traceback in it.

    Raises Hanging after ``seconds``.
    """
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), time_limit(seconds):
        try:
            status = main(arguments)
        except Hanging:
            raise
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
            status = 1
    return status, printed.buffer.getvalue().decode(errors="replace")


class Command:
    """``transformer-jax`` in a process, and group of processes, of its own, on ``devices`` fake
    devices.

    ``environment`` is added to the inherited one; a fault that it names, as
    ``injected/sitecustomize.py`` reads it, the process does to itself.
    """

    def __init__(self, *arguments: str, devices: int = 1, **environment: str) -> None:
        flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag]
        flags.append(f"--xla_force_host_platform_device_count={devices}")
        inherited = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        own = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "XLA_FLAGS": " ".join(flags)}
        own |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{INJECTED}{os.pathsep}{ROOT}"}
        # A file, not a pipe: a surviving child process would keep a pipe open.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._printed.close)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "transformer_jax", *arguments],
            cwd=ROOT,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            env=inherited | own | environment,
            process_group=0,
        )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        """What it has printed so far."""
        size = os.fstat(self._printed.fileno()).st_size
        return os.pread(self._printed.fileno(), size, 0).decode(errors="replace")

    def ended(self, seconds: float = SECONDS) -> tuple[int, str]:
        """Exit status, minus the signal that ended it, and what it printed; raises Hanging after
        ``seconds``."""
        try:
            return self.process.wait(timeout=seconds), self.output()
        except subprocess.TimeoutExpired:
            self.kill()
            raise Hanging(self.output()[-1000:]) from None

    def runs_for(self, seconds: float) -> bool:
        """Waits so long; whether it is still running."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=seconds)
        return self.is_running

    def send(self, number: int, stop_seconds: float) -> None:
        """Sends a signal to the process alone; after STOP waits ``stop_seconds`` and sends CONT."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            time.sleep(stop_seconds)
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it, and what it started in the same group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def ended(commands: list[Command], seconds: float = SECONDS) -> list[tuple[int, str]]:
    """Status and output of each; none is left."""
    try:
        return [command.ended(seconds) for command in commands]
    finally:
        for command in commands:
            command.kill()


def as_one(ends: list[tuple[int, str]]) -> tuple[int, str]:
    """The status of one that failed, and what all printed."""
    return max(abs(status) for status, _ in ends), "".join(output for _, output in ends)
