"""Training batches, read ahead while the device computes, by tf.data or by threads."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.data.tensorflow_runtime import start_tensorflow, tensorflow_being_imported
from transformer_jax.runtime.background import future_of

# Making a batch takes half a millisecond. More threads would take cores from the training step.
READER_THREADS = 2


def prefetched(read: Callable[[int], PyTree], start_update: int, prefetch: int = 8) -> Iterator[PyTree]:
    """Yield ``read(update)`` from ``start_update`` on: trees of NumPy arrays with constant dtypes.

    This thread reads until TensorFlow is imported, which takes seconds; then tf.data reads ahead.
    ``read`` must be a pure function of the update. Its exceptions are raised as they are. Raises
    DataError if TensorFlow cannot be imported.
    """
    importing, update = tensorflow_being_imported(), start_update
    while not importing.done():
        yield read(update)
        update += 1
    yield from _read_ahead(read, update, prefetch)


def read_by_threads(read: Callable[[int], PyTree], start_update: int, prefetch: int = 8) -> Iterator[PyTree]:
    """Yield ``read(update)`` as ``prefetched``, without TensorFlow: it may return any object."""
    coming, readers = deque[Future[PyTree]](), threading.Semaphore(READER_THREADS)
    updates = itertools.count(start_update)

    def read_in_turn(update: int) -> PyTree:
        with readers:
            return read(update)

    # Few at first: the first update waits for no other.
    for ahead in itertools.chain(range(1, prefetch), itertools.repeat(prefetch)):
        # Not a pool, whose threads the end of the process waits for: a bucket may never answer.
        coming.extend(future_of(read_in_turn, update) for update in itertools.islice(updates, ahead - len(coming)))
        yield coming.popleft().result()


def _read_ahead(read: Callable[[int], PyTree], start_update: int, prefetch: int) -> Iterator[PyTree]:
    tf = start_tensorflow()
    first, structure = jax.tree.flatten(read(start_update))
    types, failures = [leaf.dtype for leaf in first], list[Exception]()

    def leaves(update: np.integer) -> list[np.ndarray]:
        try:
            return jax.tree.leaves(read(int(update)))
        except Exception as error:
            failures.append(error)
            raise

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
    try:
        yield from (jax.tree.unflatten(structure, leaves) for leaves in leaves_of_batches)
    except tf.errors.OpError as error:
        raise (failures or [error])[0] from None
