"""A PostgreSQL server of one's own, which can be crashed and started again."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SECONDS_TO_START = 60.0
# The server refuses to be run by root.
USER: dict[str, Any] = {"user": "nobody"} if os.geteuid() == 0 else {}


def program(name: str) -> str | None:
    """A program of PostgreSQL, which Debian keeps out of the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name)


def missing() -> str:
    """What has to be installed first; empty where everything is."""
    if not program("initdb") or not program("postgres"):
        return "PostgreSQL is not installed (apt install postgresql)"
    return "" if find_spec("psycopg") else "the driver is not installed (pip install psycopg[binary])"


class DatabaseServer:
    """A database at ``address`` from ``start`` to ``crash``; its block starts it, and deletes it at the end."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(dir="/tmp"))
        if USER:
            shutil.chown(self._folder, USER["user"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"postgresql+psycopg://tester@127.0.0.1:{self._port}/postgres"
        self._options: dict[str, Any] = {
            "cwd": self._folder,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        new = [program("initdb"), "-D", self._folder / "data", "-U", "tester", "-A", "trust", "--no-sync"]
        subprocess.run(new, check=True, **self._options, **USER)
        self._server: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts it, after a crash with what it had committed, and waits until it can be reached."""
        command = [program("postgres"), "-D", self._folder / "data", "-p", str(self._port), "-k", self._folder]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        self._server = subprocess.Popen(command, **self._options, **USER)
        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.1)
        raise TimeoutError("the server did not start")

    def crash(self) -> None:
        """Ends it at once, cutting off every connection and writing nothing more."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(SECONDS_TO_START)
            self._server = None

    def __enter__(self) -> "DatabaseServer":
        with contextlib.ExitStack() as failed:
            failed.callback(self.__exit__)
            self.start()
            failed.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.crash()
        shutil.rmtree(self._folder)
