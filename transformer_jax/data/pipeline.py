"""Batches for training, served by tf.data: read ahead, while the device computes."""

from collections.abc import Iterator

import numpy as np

from transformer_jax.config import ConfigError
from transformer_jax.data.batch_arrays import token_rows
from transformer_jax.data.batch_plan import BatchPlan
from transformer_jax.data.token_store import TokenStore
from transformer_jax.sequence_types import Batch, Tokens

# Batches of a handful of rows are made by slicing memory maps: more threads would take cores from the step.
READER_THREADS = 1


def training_batches(
    store: TokenStore,
    plan: BatchPlan,
    *,
    start_update: int,
    process_index: int = 0,
    process_count: int = 1,
    prefetch: int = 8,
) -> Iterator[Batch]:
    """Batches of the updates from ``start_update`` on, for ever; of each, this process's share of the rows.

    Raises ConfigError when the rows of a batch do not divide over the processes.
    """
    for rows, _, _ in plan.shapes:
        if rows % process_count:
            raise ConfigError(f"batching.row_multiple: batches of {rows} rows do not divide over {process_count} processes")
    import tensorflow as tf

    # Before TensorFlow touches a device: it would take all of its memory.
    for kind in ("GPU", "TPU"):
        tf.config.set_visible_devices([], kind)

    def read(update: np.ndarray) -> list[np.ndarray]:
        batch = make_batch(store, plan, int(update), process_index, process_count)
        return [*batch.source, *batch.target]

    options = tf.data.Options()
    options.threading.private_threadpool_size = READER_THREADS
    options.deterministic = True
    updates = tf.data.Dataset.range(start_update, np.iinfo(np.int64).max)
    arrays = updates.map(lambda update: tf.numpy_function(read, [update], [tf.int32] * 6))
    for leaves in arrays.prefetch(prefetch).with_options(options).as_numpy_iterator():
        yield Batch(Tokens(*leaves[:3]), Tokens(*leaves[3:]))


def make_batch(
    store: TokenStore, plan: BatchPlan, update: int, process_index: int = 0, process_count: int = 1
) -> Batch:
    """The rows of one update that belong to one process; reads no other."""
    (rows, source_width, target_width), pairs = plan.batch(update)
    share = rows // process_count
    mine = pairs[process_index * share : (process_index + 1) * share]
    return Batch(token_rows(mine, store.source, source_width), token_rows(mine, store.target, target_width))
