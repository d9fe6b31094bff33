"""Several searches at a time on one CPU, whose cores the small products of a single search leave idle."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class SharedItems(Iterator[Item]):
    """An iterator that several threads may read; each item goes to one of them, and none after ``close``."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items, self._lock, self.is_closed = iter(items), threading.Lock(), False

    def __next__(self) -> Item:
        """The next item that no thread has."""
        with self._lock:
            if self.is_closed:
                raise StopIteration
            return next(self._items)

    def close(self) -> None:
        """Ends the iteration of all threads."""
        self.is_closed = True


def in_parallel(
    function: Callable[[Iterable[Item]], Iterable[Result]], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """The results of ``function``, called by each of ``threads`` with a part of ``items`` in their order, as they come.

    A single item is left to the calling thread. An exception of any thread, or of the caller between two results, stops all
    before they begin another item or give another result, and is raised.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2 or threads < 2:
        yield from function(chain(first, items))
        return
    shared: SharedItems[Item] = SharedItems(chain(first, items))
    results: queue.SimpleQueue[tuple[Result] | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            for result in function(shared):
                if shared.is_closed:
                    return
                results.put((result,))
        except BaseException:
            shared.close()
            raise
        finally:
            results.put(None)

    with ThreadPoolExecutor(threads, thread_name_prefix="search") as pool:
        try:
            workers = [pool.submit(work) for _ in range(threads)]
            for _ in workers:
                while found := results.get():
                    yield found[0]
        finally:
            shared.close()
    for worker in workers:
        worker.result()
