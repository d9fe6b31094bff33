"""Memory that gives out in a thread or a callback, whose errors nobody catches."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from transformer_jax.errors import is_out_of_memory


@contextmanager
def ending_without_memory(problem: Callable[[], str]) -> Iterator[None]:
    """End the process with status 1 and the sentence ``problem()`` when memory gives out in a thread or a callback.

    There Python drops the exception, and whoever waits for the thread would wait for ever.
    """
    of_thread, of_callback = threading.excepthook, sys.unraisablehook

    def end() -> None:
        said = "out of memory"
        # Memory may give out again.
        with suppress(Exception):
            said = problem()
        with suppress(Exception):
            os.write(2, f"transformer-jax: {said}\n".encode())
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
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = of_thread, of_callback
