"""The command line, ``transformer-jax COMMAND [--flag=value ...]``."""

import gc
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

USER_ERROR = 2
HELP_FLAGS = ("--help", "-help", "-h", "--helpfull")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status, 2 for an error that the user can correct."""
    try:
        if argv is None:
            _prepare_process()
        status = run_command(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout:
            # An error of the flush at exit would have no handler.
            sys.stdout.flush()
        return status
    except KeyboardInterrupt as error:
        # 130, as shells say it; 143 where SIGTERM raised it.
        return 128 + int((*error.args, signal.SIGINT)[0])
    except BrokenPipeError:
        # The reader, `head` perhaps, has seen enough.
        return 141
    except Exception as error:
        from transformer_jax.commands.registry import with_pages
        from transformer_jax.errors import colored
        from transformer_jax.files.json_text import printable

        problem = _problem_of_user(error)
        if not problem:
            raise
        print(colored(f"transformer-jax: {printable(with_pages(problem))}"), file=sys.stderr)
        # A scheduler starts it again.
        return os.EX_TEMPFAIL if getattr(error, "is_outage", False) else USER_ERROR
    finally:
        if sys.stdout:
            _flush_output()
        if argv is None:
            # Python would search all objects for garbage before it ends, 0.15 s with JAX.
            gc.freeze()


def program() -> int:
    """Run the command of this process. After an error end the process at once."""
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        status = 1
    # After a save that failed, threads of Orbax wait five minutes, and Python would wait for them.
    if status in (1, os.EX_TEMPFAIL) and any(not thread.daemon for thread in threading.enumerate()[1:]):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    return status


def _flush_output() -> None:
    """Flush standard output, and drop text that cannot be written, which the exit would report."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_process() -> None:
    from transformer_jax.runtime.startup import keep_freed_memory, skip_missing_accelerators

    warnings.formatwarning = partial(_plain_warning, warnings.formatwarning)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # For text that the encoding of the terminal lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    keep_freed_memory()
    skip_missing_accelerators()


def _problem_of_user(error: Exception) -> str:
    """Return the message of an error that the user can correct, else ""."""
    from transformer_jax.errors import ConfigError, DataError, first_line, is_out_of_memory
    from transformer_jax.registry.python_files import is_of_plugin, line_of_plugin

    if isinstance(error, ConfigError | DataError):
        return str(error)
    if is_out_of_memory(error):
        return f"out of memory ({first_line(error)})"
    if isinstance(error, OSError):
        # Such as a full disk or a folder that cannot be written.
        prefix = f"{error.filename}: " if error.filename is not None else ""
        return f"{prefix}{error.strerror or error}" if prefix or error.errno is not None else ""
    if problem := _missing_platform(error):
        return f"JAX_PLATFORMS: {problem}"
    line = line_of_plugin(error)
    if line and not is_of_plugin(error):
        traceback.print_exception(error)
    return f"{line}: {type(error).__name__}: {error}" if line else ""


def _missing_platform(error: Exception) -> str:
    """Return the problem if a platform is misspelled or has no device here, else ""."""
    if isinstance(error, RuntimeError):
        return str(error).splitlines()[0] if str(error).startswith("Unable to initialize backend") else ""
    # For cuda without a GPU JAX asserts that there is a platform, without a message.
    *_, innermost = traceback.extract_tb(error.__traceback__)
    platforms = os.environ.get("JAX_PLATFORMS", "")
    is_of_jax = (
        isinstance(error, AssertionError) and Path(innermost.filename).name == "xla_bridge.py" and not error.args
    )
    return f"no device of {platforms} here; set JAX_PLATFORMS='' to let JAX choose" if platforms and is_of_jax else ""


def _plain_warning(
    usual: Callable[..., str], message: object, category: type, filename: str, *rest: Any, **more: Any
) -> str:
    """Return a warning of this package without its line of code; ``usual`` formats all others."""
    if Path(filename).is_relative_to(Path(__file__).parent):
        from transformer_jax.errors import colored

        return colored(f"transformer-jax: WARNING: {message}\n")
    return usual(message, category, filename, *rest, **more)


def run_command(arguments: list[str]) -> int:
    """Run the command that the arguments name. Raises ConfigError, DataError."""
    if not arguments or (arguments[0] in (*HELP_FLAGS, "help") and len(arguments) == 1):
        from transformer_jax.commands.overview import overview

        print(overview())
        return 0
    if arguments[0] == "--version":
        from transformer_jax import __version__

        print(__version__)
        return 0
    from transformer_jax.commands import flags
    from transformer_jax.commands.registry import command_help, load_command

    name, *rest = arguments
    if name in (*HELP_FLAGS, "help"):
        print(command_help(rest[0]))
        return 0
    command = load_command(name)
    flags_of_command = rest[: rest.index(flags.SEPARATOR)] if flags.SEPARATOR in rest else rest
    if any(argument in HELP_FLAGS for argument in flags_of_command):
        print(command_help(name))
        return 0
    values = flags.parse(command.flags, rest)
    return command.run(values)


if __name__ == "__main__":
    sys.exit(program())
