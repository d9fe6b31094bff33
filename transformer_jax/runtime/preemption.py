"""Stopping a run by SIGINT and SIGTERM after an update, with everything saved."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType, TracebackType

import jax
from jax.experimental import multihost_utils

SIGNALS = signal.SIGINT, signal.SIGTERM
# A signal to a whole tree of processes reaches some twice: directly, and through the parent that passes it on.
ECHO_SECONDS = 1.0


class CutShort(BaseException):
    """A signal came during work that can be repeated later."""


class Interruption:
    """Records a signal that asks this process to stop; a second one, except an echo of the first, ends it at once.

    A context manager. ``number``: of the signal, 0 until it comes.
    """

    def __init__(self) -> None:
        self.number, self._cuts_short, self._since = 0, False, 0.0

    @property
    def is_asked(self) -> bool:
        """Whether a signal has arrived."""
        return self.number != 0

    def __enter__(self) -> "Interruption":
        self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def stops_after(self, step: int) -> bool:
        """Whether update ``step`` is to be the last. Ask once an update: a signal may come at any moment."""
        return self.is_asked

    @contextmanager
    def cutting_short(self) -> Iterator[None]:
        """A signal before or in the block raises CutShort, so that it takes no time from what must be saved."""
        if self.is_asked:
            raise CutShort
        self._cuts_short = True
        try:
            yield
        finally:
            self._cuts_short = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.is_asked:
            self.number, self._since = number, time.monotonic()
            if self._cuts_short:
                raise CutShort
        elif time.monotonic() - self._since > ECHO_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class AgreedInterruption:
    """As ``Interruption``, for several processes: all stop after the same update when one gets a signal.

    JAX's preemption service handles SIGTERM and finds that update, once in the life of a process; SIGINT is turned into
    SIGTERM, and a second SIGINT ends its process at once. ``number`` is the signal that ends this process.
    """

    def __init__(self) -> None:
        self._has_asked = False
        self.number: int = signal.SIGTERM
        # Never set here: processes agree on the last update in ``stops_after``.
        self.is_asked = False

    def __enter__(self) -> "AgreedInterruption":
        self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def stops_after(self, step: int) -> bool:
        """Whether update ``step`` is to be the last of all processes; each must ask once an update."""
        # A signal that came before the first update counts for update 1, which a resumed run does not make.
        came_early = not self._has_asked and multihost_utils.reached_preemption_sync_point(1)
        self._has_asked = True
        return multihost_utils.reached_preemption_sync_point(step) or came_early

    def cutting_short(self) -> AbstractContextManager[None]:
        """Does nothing: the other processes would wait for this one."""
        return nullcontext()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def interruption() -> Interruption | AgreedInterruption:
    """The interruption for this number of processes."""
    return AgreedInterruption() if jax.process_count() > 1 else Interruption()


@contextmanager
def ending_at_once() -> Iterator[None]:
    """SIGTERM and SIGINT in the block raise KeyboardInterrupt(signal), since there is nothing to save yet.

    A signal that comes in a callback, where Python drops exceptions, is raised again. Only in the main thread of a single
    process; with several processes JAX handles SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, report = OneKeyboardInterrupt(), sys.unraisablehook

    def raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            number = (*unraisable.exc_value.args, signal.SIGINT)[0]
            threading.Timer(2 * ECHO_SECONDS, os.kill, (os.getpid(), number)).start()
        elif not isinstance(unraisable.exc_value, CutShort):
            # After that the flag is set all the same.
            report(unraisable)

    previous = {number: signal.signal(number, handler) for number in SIGNALS}
    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for number, before in previous.items():
            signal.signal(number, before)


class OneKeyboardInterrupt:
    """A handler that raises KeyboardInterrupt, but not again for the echo of the same signal."""

    def __init__(self) -> None:
        self._since = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._since > ECHO_SECONDS:
            self._since = now
            raise KeyboardInterrupt(number)
