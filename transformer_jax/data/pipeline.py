"""Training batches, prefetched by tf.data while the device computes."""

from collections.abc import Callable, Iterator

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.data.tensorflow_runtime import require_tensorflow, start_tensorflow, tensorflow_being_imported

# Making a batch takes half a millisecond; more threads would take cores from the training step.
READER_THREADS = 2


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
