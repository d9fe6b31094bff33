"""Faults that a process does to itself, as variables of the environment say; on PYTHONPATH, Python imports it at its start.

``FAULT_CLOCK=AFTER,OFFSET``: AFTER seconds after the start ``time.time`` jumps by an offset in seconds.
``FAULT_SLOW=SECONDS,KILL``: files that Python writes take so long at each opening, write, fsync and renaming; kill -9 within
operation number KILL of them, in a write after half of it; 0: never.
``FAULT_SIGTERM=KIND,OCCURRENCE,DELAY,FILE``: SIGTERM DELAY seconds after the run turned to that kind of time
(``runs.goodput.KINDS``) for the n-th time; the moment (``time.monotonic``) goes to a file.
"""

import builtins
import io
import os
import signal
import sys
import threading
import time


def jump(after: float, offset: float) -> None:
    """The time of day jumps; monotonic clocks do not."""
    began, clock, clock_ns = time.monotonic(), time.time, time.time_ns

    def shift() -> float:
        return offset if time.monotonic() - began > after else 0.0

    time.time = lambda: clock() + shift()
    time.time_ns = lambda: clock_ns() + int(shift() * 1e9)


class SlowDisk:
    """Counts operations and makes them slow."""

    def __init__(self, seconds: float, kill_at: int) -> None:
        self.seconds, self.kill_at, self.count = seconds, kill_at, 0
        self.lock = threading.Lock()

    def wait(self) -> None:
        """One operation."""
        with self.lock:
            self.count += 1
            is_last = self.count == self.kill_at
        time.sleep(self.seconds)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)


def make_slow(disk: SlowDisk) -> None:
    """Patches what Python writes with; what C++ writes, the arrays of checkpoints, stays fast."""
    opened = io.open

    class SlowWriter(io.BufferedWriter):
        def write(self, data: bytes) -> int:
            half = len(data) // 2
            super().write(data[:half])
            super().flush()
            disk.wait()
            return half + super().write(data[half:])

    def slow_open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        given = (file, mode, buffering, encoding, errors, newline, closefd, opener)
        is_plain = buffering == -1 and "+" not in mode and set(mode) & set("wxa")
        if not is_plain or (isinstance(file, int) and file < 3):
            return opened(*given)
        raw = io.FileIO(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if raw.isatty():
            raw.close() if closefd else None
            return opened(*given)
        writer = SlowWriter(raw)
        return writer if "b" in mode else io.TextIOWrapper(writer, encoding, errors, newline)

    def slow(call):
        def called(*given, **named):
            disk.wait()
            return call(*given, **named)

        return called

    builtins.open = io.open = slow_open
    for name in ("fsync", "fdatasync", "replace", "rename"):
        setattr(os, name, slow(getattr(os, name)))


def ask_to_end(kind: str, occurrence: int, delay: float, file: str) -> None:
    """SIGTERM to this process, in a phase of its run."""

    def send() -> None:
        with open(file, "w", encoding="utf-8") as noted:
            noted.write(repr(time.monotonic()))
        os.kill(os.getpid(), signal.SIGTERM)

    def send_after(seconds: float) -> None:
        timer = threading.Timer(seconds, send)
        timer.daemon = True
        timer.start()

    def watch() -> None:
        while not hasattr(sys.modules.get("transformer_jax.runs.goodput"), "Clock"):
            time.sleep(0.002)
        clock, left = sys.modules["transformer_jax.runs.goodput"].Clock, [occurrence]
        turn_to = clock.turn_to

        def noted(self, new: str) -> str:
            if new == kind != self.kind:
                left[0] -= 1
                if left[0] == 0:
                    send_after(delay)
            return turn_to(self, new)

        clock.turn_to = noted

    if kind == "start_up":
        send_after(delay)
    else:
        threading.Thread(target=watch, daemon=True).start()


def inject(environment: "os._Environ[str]") -> None:
    """What the environment asks for."""
    if given := environment.get("FAULT_CLOCK"):
        jump(*map(float, given.split(",")))
    if given := environment.get("FAULT_SLOW"):
        seconds, kill_at = given.split(",")
        make_slow(SlowDisk(float(seconds), int(kill_at)))
    if given := environment.get("FAULT_SIGTERM"):
        kind, occurrence, delay, file = given.split(",", 3)
        ask_to_end(kind, int(occurrence), float(delay), file)


inject(os.environ)
