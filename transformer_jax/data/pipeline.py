"""Training batches from tf.data, prefetched while the device computes."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError
from transformer_jax.data.batch_arrays import token_rows
from transformer_jax.data.batch_plan import BatchPlan, BatchRows
from transformer_jax.data.tensorflow_runtime import require_tensorflow, start_tensorflow, tensorflow_being_imported
from transformer_jax.data.token_store import TokenStore
from transformer_jax.sequence_types import Batch

# A batch is made in half a millisecond: more threads would only take cores from the step.
READER_THREADS = 2

Parts = tuple[Sequence[int], int]
"""Indices of the parts of the rows of a batch, and the number of equal parts."""
WHOLE: Parts = ((0,), 1)


def training_batches(
    store: TokenStore,
    plan: BatchPlan,
    *,
    start_update: int,
    parts: Parts = WHOLE,
    prefetch: int = 8,
) -> Iterator[Batch]:
    """Batches of the updates from ``start_update`` on, for ever; of each, ``parts`` of the rows.

    Raises, at once and not with the first batch, ConfigError when the rows of a batch do not divide into those parts,
    and DataError where TensorFlow is not installed.
    """
    for rows, _, _ in plan.shapes:
        if rows % parts[1]:
            problem = f"batches of {rows} rows do not divide into {parts[1]} parts for the devices"
            raise ConfigError(f"batching.row_multiple: {problem}; use a multiple of {parts[1]}")
    return prefetched(partial(make_batch, store, plan, parts=parts), start_update, prefetch)


def prefetched(read: Callable[[int], PyTree], start_update: int, prefetch: int = 8) -> Iterator[PyTree]:
    """``read(update)`` of the updates from ``start_update`` on, for ever: trees of NumPy arrays, of the same types each time.

    They are made on the spot until TensorFlow is imported, which takes seconds, and read ahead from then on: a batch is a pure
    function of its update, so both give the same batches. Raises DataError where TensorFlow is not installed.
    """
    require_tensorflow()
    return _on_the_spot_then_ahead(read, start_update, prefetch)


def _on_the_spot_then_ahead(read: Callable[[int], PyTree], update: int, prefetch: int) -> Iterator[PyTree]:
    importing = tensorflow_being_imported()
    while not importing.done():
        yield read(update)
        update += 1
    yield from _read_ahead(read, update, prefetch)


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


def make_batch(store: TokenStore, plan: BatchPlan, update: int, parts: Parts = WHOLE) -> Batch:
    """The rows of one update, or some equal ``parts`` of them, one after another; reads no other."""
    whole = plan.batch(update)
    made = [_rows_of(store, whole.part(index, parts[1])) for index in parts[0]]
    return made[0] if len(made) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *made)


def _rows_of(store: TokenStore, rows: BatchRows) -> Batch:
    (_, source_width, target_width), pairs, offsets = rows
    return Batch(
        token_rows(store.source_side.sentences(pairs), offsets, source_width),
        token_rows(store.target_side.sentences(pairs), offsets, target_width),
    )
