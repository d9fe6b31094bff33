"""Training batches, read ahead while the device computes: by tf.data, or by threads where nothing else needs TensorFlow."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Event, Lock, Thread

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.data.tensorflow_runtime import require_tensorflow, start_tensorflow, tensorflow_being_imported

# Making a batch takes half a millisecond; more threads would take cores from the training step.
READER_THREADS = 2
# Updates of a window, whose tokens are read from an object store together; the first windows are shorter.
WINDOW = 64


def prefetched(read: Callable[[int], PyTree], start_update: int, prefetch: int = 8) -> Iterator[PyTree]:
    """``read(update)`` for all updates from ``start_update``, without end: trees of NumPy arrays with constant dtypes.

    This thread reads until TensorFlow is imported, which takes seconds; then tf.data reads ahead. ``read`` must be a pure
    function of the update. Raises DataError when TensorFlow is not installed.
    """
    require_tensorflow()

    def batches() -> Iterator[PyTree]:
        importing, update = tensorflow_being_imported(), start_update
        while not importing.done():
            yield read(update)
            update += 1
        yield from _read_ahead(read, update, prefetch)

    return batches()


def read_by_threads(read: Callable[[int], PyTree], start_update: int, prefetch: int = 8) -> Iterator[PyTree]:
    """``prefetched`` without TensorFlow: exceptions of ``read`` are raised as they are, and it may return any object."""
    pool = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="batches")
    try:
        coming = deque(pool.submit(read, start_update + ahead) for ahead in range(prefetch))
        for update in itertools.count(start_update + prefetch):
            yield coming.popleft().result()
            coming.append(pool.submit(read, update))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def fetched_batches(
    read: Callable[[int], PyTree], fetch: Callable[[int, int], object], start_update: int, prefetch: int = 8
) -> Iterator[PyTree]:
    """``read_by_threads`` after ``fetched_first``."""
    with fetched_first(read, fetch, start_update) as read_fetched:
        yield from read_by_threads(read_fetched, start_update, prefetch)


@contextmanager
def fetched_first(
    read: Callable[[int], PyTree], fetch: Callable[[int, int], object], start_update: int
) -> Iterator[Callable[[int], PyTree]]:
    """``read``, preceded by ``fetch(begin, end)`` for the updates of the same window, while a thread fetches the next window.

    ``fetch`` reads the tokens of a range of updates from an object store. Windows have 1, 1, 2, 4 ... ``WINDOW`` updates: the
    first update waits for little, and later windows need few large ranges. Exceptions of ``fetch`` are raised by ``read``. The
    end of the block, and of the process, does not wait for the thread; reads that wait for it raise CancelledError.
    """
    asked: SimpleQueue[tuple[Future[object], int, int] | None] = SimpleQueue()
    windows, lock, over = dict[int, Future[object]](), Lock(), Event()
    short = WINDOW.bit_length()

    def submitted(number: int) -> Future[object]:
        begin, end = (1 << number) // 2, 1 << number
        if number >= short:
            begin, end = WINDOW * (number - short + 1), WINDOW * (number - short + 2)
        found: Future[object] = Future()
        asked.put((found, start_update + begin, start_update + end))
        return found

    def fetch_windows() -> None:
        for found, begin, end in iter(asked.get, None):
            # A window may be cancelled while it is fetched.
            with suppress(InvalidStateError):
                try:
                    found.set_result(None if found.cancelled() else fetch(begin, end))
                except Exception as error:
                    found.set_exception(error)

    def read_fetched(update: int) -> PyTree:
        ahead = update - start_update
        number = ahead.bit_length() if ahead < WINDOW else short - 1 + ahead // WINDOW
        with lock:
            if over.is_set():
                raise CancelledError
            for each in (number, number + 1):
                windows[each] = windows.get(each) or submitted(each)
            own = windows[number]
            for each in [each for each in windows if each < number and windows[each].done()]:
                del windows[each]
        own.result()
        return read(update)

    Thread(target=fetch_windows, name="fetch", daemon=True).start()
    try:
        yield read_fetched
    finally:
        asked.put(None)
        with lock:
            over.set()
            for window in windows.values():
                window.cancel()


def _read_ahead(read: Callable[[int], PyTree], start_update: int, prefetch: int) -> Iterator[PyTree]:
    tf = start_tensorflow()
    first, structure = jax.tree.flatten(read(start_update))
    types = [leaf.dtype for leaf in first]

    def leaves(update: np.integer) -> list[np.ndarray]:
        return jax.tree.leaves(read(int(update)))

    # Conversion is not needed, and would leave a temporary file.
    @tf.autograph.experimental.do_not_convert
    def leaves_as_tensors(update: object) -> list:
        return tf.numpy_function(leaves, [update], types)

    options = tf.data.Options()
    options.threading.private_threadpool_size = READER_THREADS
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = True
    updates = tf.data.Dataset.range(start_update, np.iinfo(np.int64).max)
    arrays = updates.map(leaves_as_tensors, num_parallel_calls=READER_THREADS)
    leaves_of_batches = arrays.prefetch(prefetch).with_options(options).as_numpy_iterator()
    return (jax.tree.unflatten(structure, leaves) for leaves in leaves_of_batches)
