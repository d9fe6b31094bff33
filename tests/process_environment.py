"""The processes that tests start, and their environment."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def process_environment(devices: int = 1, *, cached: bool = True, **variables: str) -> dict[str, str]:
    """As here, with another number of fake devices, and with ``variables``.

    ``cached=False``: without the compilation cache, for a process that is killed and might leave
    half an entry in it.
    """
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    flags.append(f"--xla_force_host_platform_device_count={devices}")
    cache = {"JAX_ENABLE_COMPILATION_CACHE": str(cached).lower()}
    return os.environ | cache | {"XLA_FLAGS": " ".join(flags), "PYTHONPATH": str(ROOT)} | variables


def cluster(count: int = 2) -> dict[str, str]:
    """The environment by which processes join each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free.getsockname()[1]}", "JAX_NUM_PROCESSES": str(count)}


def launch(
    *arguments: str, folder: Path | str, count: int = 2, devices: int = 4, **variables: str
) -> list[subprocess.Popen]:
    """The same command as the processes of one program."""
    command = [sys.executable, "-m", "transformer_jax", *arguments, "--distributed", f"--workdir={folder}"]
    environment = process_environment(devices=devices, cached=False, **cluster(count), **variables)
    return [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment | {"JAX_PROCESS_ID": str(index)},
        )
        for index in range(count)
    ]


def ends(processes: list[subprocess.Popen], timeout: float = 900) -> list[tuple[int, str]]:
    """Exit status and output of each; kills them all where one takes longer than ``timeout``
    seconds."""
    try:
        outputs = [process.communicate(timeout=timeout)[0].decode() for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        raise
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]
