"""Faults that a process does to itself, as variables of the environment say; on PYTHONPATH, Python
imports it at its start.

``FAULT_CLOCK=AFTER,OFFSET``: AFTER seconds after the start ``time.time`` jumps by an offset in
seconds. ``FAULT_SLOW=SECONDS,KILL``: files that Python writes take so long at each opening, write,
fsync and renaming; kill -9 within operation number KILL of them, in a write after half of it; 0:
never. ``FAULT_SIGTERM=KIND,OCCURRENCE,DELAY,FILE``: SIGTERM DELAY seconds after the run turned to
that kind of time (``runs.goodput.KINDS``) for the n-th time, and a file.
"""

import builtins
import io
import itertools
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


def make_slow(seconds: float, kill_at: int) -> None:
    """Patches what Python writes with; what C++ writes, the arrays of checkpoints, stays fast."""
    opened, operations = io.open, itertools.count(1)

    def wait() -> None:
        number = next(operations)
        time.sleep(seconds)
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    class SlowWriter(io.BufferedWriter):
        def write(self, data: bytes) -> int:
            half = len(data) // 2
            super().write(data[:half])
            super().flush()
            wait()
            return half + super().write(data[half:])

    def slow_open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        is_plain = buffering == -1 and "+" not in mode and set(mode) & set("wxa")
        if not is_plain or (isinstance(file, int) and file < 3) or file == os.devnull:
            return opened(file, mode, buffering, encoding, errors, newline, closefd, opener)
        writer = SlowWriter(io.FileIO(file, mode.replace("b", "").replace("t", ""), closefd, opener))
        return writer if "b" in mode else io.TextIOWrapper(writer, encoding, errors, newline)

    def slow(call):
        def call_slowly(*arguments, **named):
            wait()
            return call(*arguments, **named)

        return call_slowly

    builtins.open = io.open = slow_open
    for name in ("fsync", "fdatasync", "replace", "rename"):
        setattr(os, name, slow(getattr(os, name)))


def ask_to_end(kind: str, occurrence: int, delay: float, file: str) -> None:
    """SIGTERM to this process, in a phase of its run."""

    def send() -> None:
        open(file, "x").close()
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(delay, send)
    timer.daemon = True

    def watch() -> None:
        while not hasattr(sys.modules.get("transformer_jax.runs.goodput"), "Clock"):
            time.sleep(0.002)
        clock, occurrences = sys.modules["transformer_jax.runs.goodput"].Clock, itertools.count(1)
        turn_to = clock.turn_to

        def note(self, new: str) -> str:
            if new == kind != self.kind and next(occurrences) == occurrence:
                timer.start()
            return turn_to(self, new)

        clock.turn_to = note

    if kind == "start_up":
        timer.start()
    else:
        threading.Thread(target=watch, daemon=True).start()


if "FAULT_CLOCK" in os.environ:
    jump(*map(float, os.environ["FAULT_CLOCK"].split(",")))
if "FAULT_SLOW" in os.environ:
    wait_seconds, kill_operation = os.environ["FAULT_SLOW"].split(",")
    make_slow(float(wait_seconds), int(kill_operation))
if "FAULT_SIGTERM" in os.environ:
    phase, number, delay_seconds, struck = os.environ["FAULT_SIGTERM"].split(",", 3)
    ask_to_end(phase, int(number), float(delay_seconds), struck)
