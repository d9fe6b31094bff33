"""Heartbeat of a trial that is being trained; it also notices when another worker has claimed the trial."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial

from transformer_jax.runtime.background import in_background
from transformer_jax.tools.sweeps.storage import UNREACHABLE, StudyLost, unreachable
from transformer_jax.tools.sweeps.study import HEARTBEAT

HEARTBEATS_PER_GRACE = 6


@contextmanager
def heartbeat(trial: Trial, grace_seconds: float) -> Iterator[threading.Event]:
    """Sends heartbeats until the end; the event is set once the trial belongs to another worker."""
    lost = threading.Event()

    def beat(over: threading.Event) -> None:
        while not over.wait(grace_seconds / HEARTBEATS_PER_GRACE) and not lost.is_set():
            try:
                trial.set_user_attr(HEARTBEAT, time.time())
            except (UpdateFinishedTrialError, StudyLost):
                lost.set()
            # The storage may answer the next time, within the grace.
            except UNREACHABLE as error:
                print(unreachable(trial.storage, error), file=sys.stderr)

    with in_background(beat, "heartbeat"):
        yield lost
