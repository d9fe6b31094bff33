"""Exhausted memory in a thread or a callback, whose errors nobody catches."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from transformer_jax.errors import is_out_of_memory


@contextmanager
def ending_without_memory(problem: Callable[[], str], *, watches_aborts: bool = False) -> Iterator[None]:
    """End the process with the sentence ``problem()`` when memory runs out in a thread or callback.

    There Python drops the exception, and a wait for the thread would never end. The status is 1.
    ``watches_aborts``: also end it when a C++ library aborts the process.
    """
    of_thread, of_callback = threading.excepthook, sys.unraisablehook

    def end(before: str = "") -> None:
        sentence = "out of memory"
        # Memory may give out again.
        with suppress(Exception):
            sentence = problem()
        with suppress(Exception):
            os.write(2, f"transformer-jax: {before}{sentence}\n".encode())
        os._exit(1)

    def hook_of_thread(arguments: "threading.ExceptHookArgs") -> None:
        if arguments.exc_value and is_out_of_memory(arguments.exc_value):
            end()
        of_thread(arguments)

    def hook_of_callback(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_value and is_out_of_memory(unraisable.exc_value):
            end()
        of_callback(unraisable)

    threading.excepthook, sys.unraisablehook = hook_of_thread, hook_of_callback
    # C++ aborts where it cannot throw; a handler of Python's would never run (signal(2)).
    at_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: end("a library aborted the process; perhaps "))
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype = ctypes.c_void_p
    handler_before = set_handler(signal.SIGABRT, at_abort) if watches_aborts else None
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = of_thread, of_callback
        if watches_aborts:
            set_handler(signal.SIGABRT, ctypes.c_void_p(handler_before))
