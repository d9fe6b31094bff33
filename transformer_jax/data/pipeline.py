"""Training batches, read ahead while the device computes: by tf.data, or by threads where nothing else needs TensorFlow."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.data.tensorflow_runtime import require_tensorflow, start_tensorflow, tensorflow_being_imported
from transformer_jax.runtime.background import future_of

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
    return _by_threads((partial(read, update) for update in itertools.count(start_update)), prefetch)


def fetched_batches(
    read: Callable[[int], PyTree], fetch: Callable[[int, int], object], start_update: int, prefetch: int = 8
) -> Iterator[PyTree]:
    """``read_by_threads`` after ``fetch(begin, end)``, which reads the tokens of these updates from an object store.

    A thread fetches one window of updates ahead. Windows have 1, 1, 2, 4 ... ``WINDOW`` updates: the first update waits for
    little, and later windows need few large ranges. Exceptions of ``fetch`` are raised.
    """

    def fetch_after(before: Future[object], begin: int, end: int) -> object:
        before.result()
        return fetch(begin, end)

    def read_after(window: Future[object], update: int) -> PyTree:
        window.result()
        return read(update)

    def reads() -> Iterator[Callable[[], PyTree]]:
        begin, end = start_update, start_update + 1
        window = future_of(fetch, begin, end)
        while True:
            size = min(end - start_update, WINDOW)
            following = future_of(fetch_after, window, end, end + size)
            yield from (partial(read_after, window, update) for update in range(begin, end))
            begin, end, window = end, end + size, following

    return _by_threads(reads(), prefetch)


def _by_threads(reads: Iterator[Callable[[], PyTree]], prefetch: int) -> Iterator[PyTree]:
    coming, readers = deque[Future[PyTree]](), threading.Semaphore(READER_THREADS)

    def read_in_turn(read: Callable[[], PyTree]) -> PyTree:
        with readers:
            return read()

    # Few at first: the first update waits for no other.
    for ahead in itertools.chain(range(1, prefetch), itertools.repeat(prefetch)):
        # Not a pool, whose threads the end of the process waits for: a store may never answer.
        coming.extend(future_of(read_in_turn, read) for read in itertools.islice(reads, ahead - len(coming)))
        yield coming.popleft().result()


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
