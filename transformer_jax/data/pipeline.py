"""Training batches from tf.data, prefetched while the device computes."""

from collections.abc import Callable, Iterator

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.data.tensorflow_runtime import require_tensorflow, start_tensorflow, tensorflow_being_imported

# A batch is made in half a millisecond: more threads would only take cores from the step.
READER_THREADS = 2


def prefetched(read: Callable[[int], PyTree], start_update: int, prefetch: int = 8) -> Iterator[PyTree]:
    """``read(update)`` of the updates from ``start_update`` on, forever: trees of NumPy arrays, of the same types each time.

    Until TensorFlow is imported, which takes seconds, this thread reads them, and tf.data reads ahead from then on: a batch is
    a pure function of its update, so both give the same batches. Raises DataError where TensorFlow is not installed.
    """
    require_tensorflow()

    def batches() -> Iterator[PyTree]:
        importing, update = tensorflow_being_imported(), start_update
        while not importing.done():
            yield read(update)
            update += 1
        yield from _read_ahead(read, update, prefetch)

    return batches()


def _read_ahead(read: Callable[[int], PyTree], start_update: int, prefetch: int) -> Iterator[PyTree]:
    tf = start_tensorflow()
    first, structure = jax.tree.flatten(read(start_update))
    types = [leaf.dtype for leaf in first]

    def leaves(update: np.integer) -> list[np.ndarray]:
        return jax.tree.leaves(read(int(update)))

    # There is nothing to convert, and conversion would leave a file in the temporary folder.
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
