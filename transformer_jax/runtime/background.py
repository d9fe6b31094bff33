"""Work in daemon threads."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")


@contextmanager
def in_background(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run ``work(over)`` in a daemon thread until the block ends, which sets the event ``over``."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def future_of(function: Callable[..., Result], *arguments: object) -> Future[Result]:
    """Return a future of ``function``, in a thread that does not delay the end of the process."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name="future_of", daemon=True).start()
    return future
