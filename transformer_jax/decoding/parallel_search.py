"""Several searches at a time on one device, which a single search leaves idle between its programs."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, cycle, islice
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class DealtItems(Generic[Item]):
    """Assigns items to threads round-robin, whichever thread asks first; yields none after ``close``."""

    def __init__(self, items: Iterable[Item], threads: int) -> None:
        self._items, self._lock, self.is_closed = iter(items), threading.Lock(), False
        self._hands: list[deque[Item]] = [deque() for _ in range(threads)]
        self._turns = cycle(self._hands)

    def of(self, thread: int) -> Iterator[Item]:
        """The items of one thread, in order."""
        hand = self._hands[thread]
        while True:
            with self._lock:
                while not hand and not self.is_closed and self._deal():
                    pass
                if self.is_closed or not hand:
                    return
                item = hand.popleft()
            yield item

    def _deal(self) -> bool:
        """Gives one item to the thread whose turn it is; False where none is left."""
        for item in self._items:
            next(self._turns).append(item)
            return True
        return False

    def close(self) -> None:
        """Ends the iterations of all threads."""
        self.is_closed = True


def in_parallel(
    function: Callable[[Iterable[Item]], Iterable[Result]], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """The results of ``function``, called by each of ``threads`` with every so many-th of ``items``, as they come.

    Which thread has an item does not depend on time. A single item is left to the calling thread. An exception of any thread,
    or of the caller between two results, stops all before they begin another item or give another result, and is raised.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2 or threads < 2:
        yield from function(chain(first, items))
        return
    dealt: DealtItems[Item] = DealtItems(chain(first, items), threads)
    results: queue.SimpleQueue[tuple[Result] | None] = queue.SimpleQueue()

    def work(thread: int) -> None:
        try:
            for result in function(dealt.of(thread)):
                if dealt.is_closed:
                    return
                results.put((result,))
        except BaseException:
            dealt.close()
            raise
        finally:
            results.put(None)

    with ThreadPoolExecutor(threads, thread_name_prefix="search") as pool:
        try:
            workers = [pool.submit(work, thread) for thread in range(threads)]
            for _ in workers:
                while found := results.get():
                    yield found[0]
        finally:
            dealt.close()
    for worker in workers:
        worker.result()
