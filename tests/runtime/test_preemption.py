"""Signals that ask a run to stop, and their echoes."""

import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from transformer_jax.runtime import preemption
from transformer_jax.runtime.preemption import Interruption, OneKeyboardInterrupt, ending_at_once

SECOND_IN_EARNEST = """
import os, signal
from transformer_jax.runtime import preemption
preemption.ECHO_SECONDS = -1.0
with preemption.Interruption() as asked:
    os.kill(os.getpid(), signal.SIGTERM)
    assert asked.number
    os.kill(os.getpid(), signal.SIGTERM)
    print("still here")
"""


def test_an_echo_of_a_signal_is_no_second_one(monkeypatch):
    monkeypatch.setattr(preemption, "ECHO_SECONDS", math.inf)
    with Interruption() as asked:
        assert not asked.stops_after(1)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert asked.stops_after(2)


def test_a_run_in_another_thread_leaves_signals_alone():
    def enter():
        with Interruption() as asked:
            return asked.stops_after(1)

    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor() as threads:
        assert not threads.submit(enter).result()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_ends_the_process_at_once():
    ended = subprocess.run([sys.executable, "-c", SECOND_IN_EARNEST], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")


def test_an_echo_raises_no_second_keyboard_interrupt(monkeypatch):
    handler, clock = OneKeyboardInterrupt(), iter([5.0, 5.6, 6.2])
    monkeypatch.setattr("transformer_jax.runtime.preemption.time.monotonic", lambda: next(clock))
    with pytest.raises(KeyboardInterrupt):
        handler(signal.SIGTERM, None)
    handler(signal.SIGTERM, None)
    # However often it is pressed, an echo ends a second after the first.
    with pytest.raises(KeyboardInterrupt):
        handler(signal.SIGTERM, None)


def test_sigterm_before_there_is_anything_to_save_ends_at_once_and_clears_away():
    cleared, before = [], signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt) as raised, ending_at_once():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            cleared.append(True)
    assert cleared and raised.value.args == (signal.SIGTERM,)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_falls_into_a_callback_is_raised_again(monkeypatch):
    monkeypatch.setattr(preemption, "ECHO_SECONDS", 0.05)

    class Collected:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt), ending_at_once():
        Collected()
        time.sleep(60)


@pytest.mark.parametrize("context", [Interruption, ending_at_once])
def test_a_hangup_stops_a_run_unless_it_is_ignored(context):
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGHUP, handler)
            with context():
                assert (signal.getsignal(signal.SIGHUP) == handler) == (handler == signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, before)
