"""A PostgreSQL server of the tests' own."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def program(name: str) -> str | None:
    """A program of PostgreSQL, which Debian keeps out of the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name)


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Its address, while it runs; the test is skipped where there is none."""
    initdb, postgres = program("initdb"), program("postgres")
    if not initdb or not postgres:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    pytest.importorskip("psycopg", reason="the driver is not installed (pip install psycopg[binary])")
    # The server refuses to be run by root.
    user = {"user": "nobody"} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    if user:
        shutil.chown(folder, "nobody")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    subprocess.run([initdb, "-D", folder / "data", "-U", "tester", "-A", "trust"], check=True, **quiet, **user)
    command = [postgres, "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
    server = subprocess.Popen([*command, "-c", "fsync=off"], **quiet, **user)
    try:
        await_port(port)
        yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
        shutil.rmtree(folder)


def await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not start")
