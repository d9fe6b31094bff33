"""Several processes that run one command: initialization, exchange of values, barriers.

Processes wait for each other in JAX's coordination service, with a stated limit, and never in a collective, which fails after
30 s and cannot say whom it waits for.
"""

import ctypes
import itertools
import json
import os
import re
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

import jax

from transformer_jax.config import ConfigError, DataError
from transformer_jax.errors import complain
from transformer_jax.private_modules import coordination_client


def _seconds(name: str, default: int) -> int:
    """The number in a variable of the environment; raises ConfigError where it has none above 0."""
    text = os.environ.get(name) or str(default)
    if not (text.isdecimal() and int(text)):
        raise ConfigError(name, f"{text!r} is not a number of seconds above 0, such as {default}")
    return int(text)


# A process without a heartbeat for this long counts as dead, and all others end. JAX's default is 100 s.
SECONDS_UNTIL_DEAD = _seconds("TRANSFORMER_JAX_SECONDS_UNTIL_DEAD", 30)
# How long processes wait for each other while one compiles, reads or tokenizes.
SECONDS_TO_WAIT = _seconds("TRANSFORMER_JAX_SECONDS_TO_WAIT", 1800)
SECONDS_UNTIL_REPORTED = 20.0
# Errors of the collective libraries and of JAX's coordination service, raised when another process has ended.
# TensorStore says "ABORTED: All 3 retry attempts failed" of a store that does not answer.
OF_ANOTHER = re.compile(r"Gloo|NCCL|[Cc]oordination|heartbeat|^(?:UNAVAILABLE|ABORTED(?!.*retry)|DEADLINE_EXCEEDED)")
Json = TypeVar("Json")
Made = TypeVar("Made")
_EXCHANGES = itertools.count()
"""Numbers the exchanges of values, which all processes make in the same order."""
# 75 of sysexits.h: a scheduler starts the process again, and the run resumes.
STATUS_TO_RESTART = os.EX_TEMPFAIL
BY_HAND = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def join_processes() -> int:
    """Connects this process to the others that run the same command, and returns its number; call before any other use of JAX.

    JAX recognizes SLURM and Open MPI (a process for each GPU), Kubernetes and TPU pods. Elsewhere the environment has
    ``JAX_COORDINATOR_ADDRESS`` (host:port of process 0), ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID``, like torchrun's.
    Raises ConfigError when the number of processes is unknown, or when they cannot connect.
    """
    if coordination_client() is not None:
        return jax.process_index()
    # C++ connects the processes. It aborts where one is missing, and Python's handler of Ctrl-C does not run meanwhile.
    explain_aborts(
        f"transformer-jax: --distributed: not all processes came in {SECONDS_TO_WAIT} s; look at the output of the others, and "
        "raise TRANSFORMER_JAX_SECONDS_TO_WAIT if they are slow"
    )
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with _reported_after(SECONDS_UNTIL_REPORTED, "this process waits for the others, to connect"):
            jax.distributed.initialize(
                **_by_hand(),
                initialization_timeout=SECONDS_TO_WAIT,
                heartbeat_timeout_seconds=SECONDS_UNTIL_DEAD,
                shutdown_timeout_seconds=SECONDS_UNTIL_DEAD,
            )
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            "--distributed", error, f"outside of SLURM, Open MPI, Kubernetes and TPU pods set {', '.join(BY_HAND)}"
        ) from error
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
    if jax.process_count() > 1:
        devices = f"{jax.local_device_count()} of {jax.device_count()} devices"
        advice = "if one dies, the others end within a minute; the same command on all of them resumes"
        print(f"process {jax.process_index()} of {jax.process_count()}, {devices}; {advice}", file=sys.stderr)
        explain_aborts(_lost_another(""))
        wait_for_all("start")
    return jax.process_index()


_HANDLERS: list[object] = []


def explain_aborts(message: str) -> None:
    """Makes SIGABRT print ``message`` and end the process with status 75.

    ``abort`` runs in a C++ thread, where a Python handler would never run (signal(2)).
    """
    line = f"{message}\n".encode()

    def print_and_end(number: int) -> None:
        with suppress(OSError):
            os.write(2, line)
        os._exit(STATUS_TO_RESTART)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(print_and_end)
    # Keeps the handler alive.
    _HANDLERS.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)


@contextmanager
def ending_with_others() -> Iterator[None]:
    """Waits for all processes at the end of the block; where a collective fails because one ended, ends this one too.

    It then ends at once, since an orderly shutdown would wait for the other process.
    """
    try:
        yield
        # JAX would end this process if another came to its exit more than SECONDS_UNTIL_DEAD later.
        wait_for_all("end")
    except (ConfigError, DataError):
        raise
    except Exception as error:
        if not is_of_another(error):
            raise
        end_with_another(error)


def is_of_another(error: BaseException) -> bool:
    """Whether this is one of several processes, and the error or its cause reports the end of another one."""
    errors = [each for each in (error, error.__cause__) if isinstance(each, ValueError | RuntimeError)]
    return jax.process_count() > 1 and any(OF_ANOTHER.search(str(each)) for each in errors)


def end_with_another(error: BaseException) -> NoReturn:
    """Ends this process, with one line and status 75."""
    complain(_lost_another(str(error)))
    end_at_once(STATUS_TO_RESTART)


def end_at_once(status: int) -> NoReturn:
    """Ends this process without an orderly shutdown, which would wait for processes that still train."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)


def _lost_another(error: str) -> str:
    reason = f" ({error.strip().splitlines()[0][:200]})" if error.strip() else ""
    return (
        f"transformer-jax: process {jax.process_index()} ends, most likely because another one did or hangs{reason}; look at "
        "the output of the others, and give the same command to all; training resumes from the newest checkpoint"
    )


def wait_for_all(name: str) -> None:
    """A barrier: returns when all processes have called it with this name, which can be used once.

    Reports that it waits. Raises ConfigError after ``TRANSFORMER_JAX_SECONDS_TO_WAIT`` seconds (default: 1800), RuntimeError
    where another process died.
    """
    client = coordination_client()
    if jax.process_count() > 1 and client is not None:
        _waited_for(name, lambda: client.wait_at_barrier(f"transformer_jax/{name}", 1000 * SECONDS_TO_WAIT))


def _waited_for(name: str, wait: Callable[[], Made]) -> Made:
    """The result of ``wait``, a call of the coordination service that raises RuntimeError after the limit."""
    try:
        with _reported_after(SECONDS_UNTIL_REPORTED, f"process {jax.process_index()} waits for the others: {name}"):
            return wait()
    except RuntimeError as error:
        if not str(error).startswith("DEADLINE_EXCEEDED"):
            raise
        raise ConfigError(
            "--distributed",
            f"not all processes came to {name!r} in {SECONDS_TO_WAIT} s",
            "raise TRANSFORMER_JAX_SECONDS_TO_WAIT if they are slow, and tokenize a large corpus "
            f"before ({str(error).splitlines()[0][:200]})",
        ) from None


@contextmanager
def _reported_after(seconds: float, text: str) -> Iterator[None]:
    """Prints ``text`` unless the block ends before."""
    timer = threading.Timer(seconds, partial(print, text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _by_hand() -> dict[str, Any]:
    values = {name: os.environ.get(name, "") for name in BY_HAND}
    if not (values["JAX_NUM_PROCESSES"] or values["JAX_PROCESS_ID"]):
        return {}
    for name, value in values.items():
        if not (value if name == BY_HAND[0] else value.isdigit()):
            raise ConfigError("--distributed", f"{name} is {value!r}", f"all of {', '.join(BY_HAND)} must be set")
    address, count, index = values.values()
    options = {"coordinator_address": address, "num_processes": int(count), "process_id": int(index)}
    return options | {"cluster_detection_method": "deactivate"}


def is_first() -> bool:
    """Whether this is process 0, which writes files and prints."""
    return jax.process_index() == 0


def from_first(make: Callable[[], Json], name: str) -> Json:
    """Calls ``make`` on process 0 only and returns its result, which must be JSON, on all processes.

    ``name``: of the result, for processes that wait. A ConfigError or DataError raised by ``make`` is raised on all of them.
    All processes call it, in the same order.
    """
    if jax.process_count() == 1:
        return make()
    key = str(next(_EXCHANGES))
    answer: dict[str, Any] = {}
    problem = None
    if is_first():
        try:
            answer = {"made": make()}
        except (ConfigError, DataError) as error:
            answer, problem = {"problem": str(error)}, error
        _set(key, answer)
    answer = _get(key, name)
    if "problem" in answer:
        raise problem or DataError(answer["problem"])
    return answer["made"]


def from_all(name: str, here: Json) -> list[Json]:
    """The values of ``here``, which must be JSON, of all processes in their order; a name can be used once."""
    if jax.process_count() == 1:
        return [here]
    _set(f"{name}/{jax.process_index()}", here)
    return [_get(f"{name}/{index}", f"{name} of process {index}") for index in range(jax.process_count())]


def all_agree(here: bool, name: str) -> bool:
    """Whether ``here`` is true on every process; all call it, in the same order."""
    return all(from_all(f"{name} {next(_EXCHANGES)}", here))


def _set(key: str, value: Any) -> None:
    client = coordination_client()
    client.key_value_set(f"transformer_jax/{key}", json.dumps(value))


def _get(key: str, name: str) -> Any:
    client = coordination_client()
    address, milliseconds = f"transformer_jax/{key}", 1000 * SECONDS_TO_WAIT
    return json.loads(_waited_for(name, lambda: client.blocking_key_value_get(address, milliseconds)))


def say(text: str, file: TextIO | None = None) -> None:
    """Prints on process 0 only, to standard output unless ``file`` is given."""
    if is_first():
        print(text, file=file)


@contextmanager
def first_goes_first(name: str) -> Iterator[None]:
    """Runs the block on process 0, then on the others, which find the files that it wrote.

    ``name``: of these files, for processes that wait. A ConfigError or DataError of process 0 is raised on all. The block
    may not wait for another process.
    """
    if not is_first():
        from_first(lambda: None, name)
        yield
        return
    problem: Exception | None = None
    try:
        yield
    except (ConfigError, DataError) as error:
        problem = error

    def outcome() -> None:
        if problem:
            raise problem

    from_first(outcome, name)


def require_same(content: str, key: str, problem: str, remedy: str) -> None:
    """Raises ConfigError in every process, unless ``content`` is the same in all."""
    if not all_agree(from_first(lambda: content, "settings") == content, "settings"):
        raise ConfigError(key, problem, remedy)


def require_shared_folder(folder: Path) -> None:
    """Raises ConfigError, in every process, unless all see the same ``folder``."""
    if jax.process_count() == 1:
        return

    def leave_marker() -> str:
        name = f"processes.{uuid.uuid4().hex}.partial"
        os.close(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        return name

    marker = folder / from_first(leave_marker, "shared folder")
    is_seen_by_all = all_agree(marker.is_file(), "shared folder")
    if is_first():
        marker.unlink()
    if not is_seen_by_all:
        raise ConfigError(
            "--workdir", f"not all processes see {folder} of process 0", "give a folder that all hosts share"
        )
