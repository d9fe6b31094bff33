"""A watchdog for updates that hang: a lost device or a dead collective never returns, and no exception is raised."""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transformer_jax.runs.clock import TRAINING, Clock
from transformer_jax.runtime.background import in_background

# EX_TEMPFAIL of sysexits.h: a scheduler starts the process again, and the run resumes.
HANGING = 75
LEAST_SECONDS = 60.0
POLLS_A_LIMIT = 20


@contextmanager
def watchdog(
    clock: Clock, factor: float, stacks: Path, end: Callable[[int], object] = os._exit, least: float = LEAST_SECONDS
) -> Iterator[None]:
    """Ends the process when an update takes ``factor`` times the median, and at least ``least`` seconds; 0: never.

    Before that the stacks of all threads are appended to ``stacks``. Compiling, evaluating and saving are not watched.
    """

    def watch(over: threading.Event) -> None:
        while not over.wait(least / POLLS_A_LIMIT):
            median = clock.median_update_seconds()
            limit = max(factor * median, least)
            if median and clock.kind in TRAINING and time.perf_counter() - clock.turned > limit:
                # Never through a link that somebody else put into the run directory.
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
                with suppress(OSError), os.fdopen(os.open(stacks, flags, 0o666), "a", encoding="utf-8") as file:
                    faulthandler.dump_traceback(file, all_threads=True)
                print(
                    f"no update for {limit:.0f} s; the stacks of all threads are in {stacks}",
                    file=sys.stderr,
                    flush=True,
                )
                end(HANGING)
                return

    if not factor:
        yield
        return
    with in_background(watch, "watchdog"):
        yield
