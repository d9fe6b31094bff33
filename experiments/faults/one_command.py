"""One command in this process, with everything that it prints, also from threads and from C++, and a limit of time."""

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import traceback

from transformer_jax.__main__ import main

SECONDS = 600.0
"""Beyond it a command counts as hanging."""


class Hanging(BaseException):
    """A command did not end in time."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raises Hanging in the block after so many seconds; ends the process, with its stacks, where that has no effect."""

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

    Raises Hanging after so many seconds.
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
