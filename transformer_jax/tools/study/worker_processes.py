"""The worker processes of one host: GPUs, cores, logs and signals."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

from transformer_jax.config import ConfigError

POLL_SECONDS = 1.0
# A worker that is killed again and again, as by a trial without memory, is replaced this often.
REPLACEMENTS = 3
STOPPING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# From prctl(2).
PR_SET_PDEATHSIG = 1
# Environment variable of a worker: the process that started it.
PARENT = "TRANSFORMER_JAX_SWEEP_PARENT"


def gpus() -> list[str]:
    """Return the NVIDIA GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip()]
    # CUDA numbers the visible devices: the only GPU of a container is 0, whatever its number on the
    # host.
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def gpu_environments(workers: int, devices: Sequence[str]) -> list[dict[str, str]]:
    """Return the environment variables that give every worker its GPUs, or its share of one.

    ``gpu_environments(2, ["0", "1", "2", "3"])`` is
    ``[{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]``. Workers on one GPU have
    equal shares of its memory. Without GPUs, and for one worker, nothing is set.
    """
    if not devices or workers == 1:
        return [{} for _ in range(workers)]
    most, least = max(workers, len(devices)), min(workers, len(devices))
    if most % least:
        divisors = [number for number in range(1, workers) if len(devices) % number == 0 or number % len(devices) == 0]
        raise ConfigError(
            "--workers", f"{workers} workers and {len(devices)} GPUs do not divide", f"use {divisors[-1]}"
        )
    if workers > len(devices):
        memory = f"{0.9 * len(devices) / workers:.3f}"
        return [
            {"CUDA_VISIBLE_DEVICES": devices[number % len(devices)], "XLA_PYTHON_CLIENT_MEM_FRACTION": memory}
            for number in range(workers)
        ]
    share = len(devices) // workers
    return [{"CUDA_VISIBLE_DEVICES": ",".join(devices[number * share :][:share])} for number in range(workers)]


def share_cores(number: int, workers: int) -> None:
    """Restrict this process to its cores: worker 1 of 2 on cores 0 to 3 gets 2 and 3."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    share = len(cores) // workers
    if share:
        os.sched_setaffinity(0, cores[number * share :][:share])


def end_with_parent() -> None:
    """Make Linux send this process SIGTERM when its parent ends, or now if it has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        parent = os.environ.get(PARENT)
        if parent and os.getppid() != int(parent):
            os.kill(os.getpid(), signal.SIGTERM)


def log_file(logs: Path, number: int) -> Path:
    return logs / f"{os.uname().nodename}-{number}.log"


def run_workers(
    command: Sequence[str], environments: Sequence[dict[str, str]], logs: Path, look: Callable[[], None]
) -> list[int]:
    """Run a worker in every environment until all have ended, and return their exit statuses.

    Calls ``look`` every second. SIGINT, SIGTERM and SIGHUP are passed on, and the workers save and
    end. A worker that another signal ends, such as SIGKILL when memory is short, is replaced.
    Workers write to files in ``logs``.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        workers: list[subprocess.Popen[bytes]] = []
        replaced, is_stopping = [0] * len(environments), False

        def started(index: int) -> subprocess.Popen[bytes]:
            # New process groups: a terminal would send Ctrl-C to the workers too, and a second
            # signal ends a run at once.
            variables, nothing = os.environ | environments[index] | {PARENT: str(os.getpid())}, subprocess.DEVNULL
            return subprocess.Popen(
                command, env=variables, stdout=files[index], stderr=files[index], stdin=nothing, process_group=0
            )

        def are_running() -> bool:
            statuses = [worker.poll() for worker in workers]
            for index, status in enumerate(statuses):
                # The number of the signal that ended it, 0 if none did.
                number = max(-(status or 0), 0)
                is_killed = number > 0 and number not in STOPPING
                if is_killed and not is_stopping and replaced[index] < REPLACEMENTS:
                    replaced[index] += 1
                    name = signal.Signals(number).name
                    print(f"worker {index} was ended by {name}; another one replaces it", file=sys.stderr)
                    workers[index], statuses[index] = started(index), None
            return None in statuses

        def pass_on(number: int, frame: FrameType | None) -> None:
            nonlocal is_stopping
            is_stopping = True
            # The terminal may be gone.
            with suppress(OSError):
                print("stopping: the workers save; the same command resumes", file=sys.stderr)
            for worker in workers:
                if worker.poll() is None:
                    worker.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

        for number in STOPPING:
            # nohup ignores SIGHUP.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                stack.callback(signal.signal, number, signal.signal(number, pass_on))
        try:
            files = [stack.enter_context(log_file(logs, index).open("ab")) for index, _ in enumerate(environments)]
            for index, _ in enumerate(environments):
                # One by one: a signal in between reaches the first ones.
                workers.append(started(index))
            while are_running():
                look()
                time.sleep(POLL_SECONDS)
        finally:
            for worker in workers:
                worker.terminate()
            statuses = [worker.wait() for worker in workers]
    return statuses
