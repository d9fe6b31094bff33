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

SECONDS_TO_START = 60.0
# The server refuses to be run by root.
USER = {"user": "nobody"} if os.geteuid() == 0 else {}


def program(name: str) -> str | None:
    """A program of PostgreSQL, which Debian keeps out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Its address, while it runs; the test is skipped where PostgreSQL or its driver is not
    installed."""
    pytest.importorskip("psycopg")
    if not program("initdb"):
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket() as free:
        shutil.chown(folder, USER.get("user", os.geteuid()))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **USER}
        initdb = [program("initdb"), "-D", f"{folder}/data", "-U", "tester", "-A", "trust", "--no-sync"]
        subprocess.run(initdb, check=True, **quiet)
        command = [program("postgres"), "-D", f"{folder}/data", "-p", str(port), "-k", folder]
        server = subprocess.Popen([*command, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"], **quiet)
        try:
            await_port(port)
            yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait(SECONDS_TO_START)


def await_port(port: int) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not start")
