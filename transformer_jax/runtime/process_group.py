"""The group of processes that run one command: they connect, and end when one ended."""

import ctypes
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import jax

from transformer_jax.config import ConfigError, DataError
from transformer_jax.errors import complain
from transformer_jax.runtime.distributed import (
    SECONDS_TO_WAIT,
    SECONDS_UNTIL_REPORTED,
    reported_after,
    seconds_in,
    wait_for_all,
)

# A process without a heartbeat for this long counts as dead, and all others end (JAX: 100 s).
SECONDS_UNTIL_DEAD = seconds_in("TRANSFORMER_JAX_SECONDS_UNTIL_DEAD", 30)
# Errors of collectives and of JAX's coordination service when another process has ended.
# "ABORTED: All 3 retry attempts failed" is TensorStore's, of a store that does not answer.
OF_ANOTHER = re.compile(r"Gloo|NCCL|[Cc]oordination|heartbeat|^(?:UNAVAILABLE|ABORTED(?!.*retry)|DEADLINE_EXCEEDED)")
# 75 of sysexits.h: a scheduler starts the process again, and the run resumes.
STATUS_TO_RESTART = os.EX_TEMPFAIL
BY_HAND = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def join_processes() -> int:
    """Connect this process to the others of this command, and return its number.

    Call it before any other use of JAX, which recognizes SLURM and Open MPI (a process for each
    GPU), Kubernetes and TPU pods. Elsewhere the environment has ``JAX_COORDINATOR_ADDRESS``
    (host:port of process 0), ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID``, like torchrun's. Raises
    ConfigError when the number of processes is unknown, or when they cannot connect.
    """
    if jax.distributed.is_initialized():
        return jax.process_index()
    # C++ connects the processes, aborts if one is missing, and blocks Python's handler of Ctrl-C.
    explain_aborts(
        f"transformer-jax: --distributed: not all processes came in {SECONDS_TO_WAIT} s; look at the output of the others, and "
        "raise TRANSFORMER_JAX_SECONDS_TO_WAIT if they are slow"
    )
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with reported_after(SECONDS_UNTIL_REPORTED, "this process waits for the others, to connect"):
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
    """Make SIGABRT print ``message`` and end the process with status 75.

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
    """Wait for all processes at the end of the block, or end at once when another ended."""
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
    """Return whether the error, or its cause, reports the end of another process."""
    texts = [str(link) for link in (error, error.__cause__) if isinstance(link, ValueError | RuntimeError)]
    return jax.process_count() > 1 and any(map(OF_ANOTHER.search, texts))


def end_with_another(error: BaseException) -> NoReturn:
    """End this process, with one line and status 75."""
    complain(_lost_another(str(error)))
    end_at_once(STATUS_TO_RESTART)


def end_at_once(status: int) -> NoReturn:
    """End this process without a shutdown, which would wait for processes that still train."""
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
