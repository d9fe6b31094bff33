"""Commands in this process, with a limit of time, and in processes of their own that are signaled and awaited."""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from transformer_jax.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
INJECTED = Path(__file__).resolve().parent / "injected"
POLL_SECONDS = 0.01
SECONDS = 600.0
"""Beyond it a command counts as hanging."""


class Hanging(BaseException):
    """A command did not end in time."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raises Hanging in the block after ``seconds``; if that has no effect, ends the process and prints its stacks."""

    def raise_hanging(number: int, frame: object) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, raise_hanging)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_command_here(arguments: list[str], stdin: bytes = b"", seconds: float = SECONDS) -> tuple[int, str]:
    """Exit status, and what went to standard output and error; an exception that escapes is a traceback in it.

    Raises Hanging after ``seconds``.
    """
    with tempfile.TemporaryFile() as captured, tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        sys.stdout.flush(), sys.stderr.flush()
        kept = [os.dup(number) for number in range(3)]
        for number, file in enumerate((given, captured, captured)):
            os.dup2(file.fileno(), number)
        before = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - closed below
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        try:
            with time_limit(seconds):
                status = main(arguments)
        except Hanging:
            raise
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
            status = 1
        finally:
            for file in (sys.stdout, sys.stderr):
                file.flush()
            sys.stdin, sys.stdout, sys.stderr = before
            for number, copy in enumerate(kept):
                os.dup2(copy, number)
                os.close(copy)
        captured.seek(0)
        return status, captured.read().decode(errors="replace")


class Command:
    """``transformer-jax`` in a process, and group of processes, of its own, on ``devices`` fake devices.

    Compiled programs are kept in the folder that its recipe names, which a kill may halve as it may a user's.
    ``environment``: what is added to it; where it names a fault, as ``injected/sitecustomize.py`` reads it, the process does
    that to itself.
    """

    def __init__(self, *arguments: str, devices: int = 1, **environment: str) -> None:
        flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag]
        flags.append(f"--xla_force_host_platform_device_count={devices}")
        inherited = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        own = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "XLA_FLAGS": " ".join(flags)}
        own |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{INJECTED}{os.pathsep}{ROOT}"}
        # A file, not a pipe: a surviving child process would keep a pipe open.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "transformer_jax", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            env=inherited | own | environment,
            process_group=0,
        )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def output(self) -> str:
        """What it has printed so far."""
        if self._printed.closed:
            return self._said
        size = os.fstat(self._printed.fileno()).st_size
        return os.pread(self._printed.fileno(), size, 0).decode(errors="replace")

    def ended(self, seconds: float = SECONDS) -> tuple[int, str]:
        """Exit status, minus the signal that ended it, and what it printed; raises Hanging after ``seconds``."""
        try:
            status = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Hanging from None
        self._close()
        return status, self._said

    def runs_for(self, seconds: float) -> bool:
        """Waits so long; whether it is still running."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=seconds)
        return self.is_running

    def strike(self, number: int) -> None:
        """Sends a signal to the process alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Ends it, and what it started in the same group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close()

    def _close(self) -> None:
        self._said = self.output()
        self._printed.close()


def train(recipe: Path, run: Path, *arguments: str, devices: int = 1, **environment: str) -> Command:
    """``train`` in a process of its own."""
    return Command("train", f"--config={recipe}", f"--workdir={run}", *arguments, devices=devices, **environment)
