"""One command in this process, with everything that it prints, also from threads and from C++."""

import os
import sys
import tempfile
import traceback

from transformer_jax.__main__ import main


def run_command_here(arguments: list[str], stdin: bytes = b"") -> tuple[int, str]:
    """Exit status, and what went to standard output and error; an exception that escapes is a traceback in it."""
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
            status = main(arguments)
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
