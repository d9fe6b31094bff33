"""Stopping a run by SIGINT, SIGTERM and SIGHUP after an update, with everything saved."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

import jax
from jax.experimental import multihost_utils

SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# A signal to a process group can reach a process twice: directly, and from its parent.
ECHO_SECONDS = 1.0


class CutShort(BaseException):
    """A signal came during work that can be repeated later."""


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handled() -> list[signal.Signals]:
    """Return ``SIGNALS``, without SIGHUP if it is ignored, as with ``nohup``."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in SIGNALS if not (ignores_hangup and number == signal.SIGHUP)]


class Interruption:
    """Records SIGINT, SIGTERM or SIGHUP. A second one, except an echo, ends the process at once.

    ``number``: of the signal, 0 until it comes. Only the main thread gets signals.
    """

    def __init__(self) -> None:
        self.number, self._cuts_short, self._since = 0, False, 0.0

    def __enter__(self) -> "Interruption":
        numbers = _handled() if _is_main_thread() else ()
        self._previous = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def stops_after(self, step: int) -> bool:
        """Return whether update ``step`` must be the last. Call it once an update."""
        return self.number != 0

    @contextmanager
    def cutting_short(self) -> Iterator[None]:
        """Raise CutShort at a signal before or in the block, which leaves the time to saving."""
        if self.number:
            raise CutShort
        self._cuts_short = True
        try:
            yield
        finally:
            self._cuts_short = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self._since = number, time.monotonic()
            if self._cuts_short:
                raise CutShort
        elif time.monotonic() - self._since > ECHO_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class AgreedInterruption:
    """``Interruption`` of several processes: all stop after the same update when one gets a signal.

    JAX's preemption service handles SIGTERM and selects that update, once in the life of a process.
    SIGINT is turned into SIGTERM, and a second SIGINT ends its process at once. ``number`` is the
    signal that ends this process.
    """

    def __init__(self) -> None:
        self._is_first_call = True
        self.number: int = signal.SIGTERM

    def __enter__(self) -> "AgreedInterruption":
        self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def stops_after(self, step: int) -> bool:
        """Return whether update ``step`` must be the last. All processes call it once an update."""
        # An earlier signal counts for update 1, which a resumed run does not make.
        came_early = self._is_first_call and multihost_utils.reached_preemption_sync_point(1)
        self._is_first_call = False
        return multihost_utils.reached_preemption_sync_point(step) or came_early

    def cutting_short(self) -> AbstractContextManager[None]:
        """Do nothing: the other processes would wait for this one."""
        return nullcontext()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def interruption() -> AbstractContextManager[Interruption | AgreedInterruption]:
    return AgreedInterruption() if jax.process_count() > 1 else Interruption()


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Raise KeyboardInterrupt(signal) in the block, before there is something to save.

    A signal that comes in a callback, where Python drops exceptions, is raised again. Does nothing
    outside the main thread. For a single process: of several, JAX handles SIGTERM.
    """
    if not _is_main_thread():
        yield
        return
    handler, report = OneKeyboardInterrupt(), sys.unraisablehook

    def raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            number = (*unraisable.exc_value.args, signal.SIGINT)[0]
            threading.Timer(2 * ECHO_SECONDS, os.kill, (os.getpid(), number)).start()
        # At CutShort the signal is recorded already.
        elif not isinstance(unraisable.exc_value, CutShort):
            report(unraisable)

    previous = {number: signal.signal(number, handler) for number in _handled()}
    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for number, before in previous.items():
            signal.signal(number, before)


class OneKeyboardInterrupt:
    """A signal handler that raises KeyboardInterrupt, once for a signal and its echo."""

    def __init__(self) -> None:
        self._since = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._since > ECHO_SECONDS:
            self._since = now
            raise KeyboardInterrupt(number)
