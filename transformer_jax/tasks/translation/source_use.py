"""Signs of a translation model that does not use its source: uniform cross attention, outputs that do not differ."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PAD_ID, Array, Bool, Float, PyTree
from transformer_jax.data.batches import token_rows
from transformer_jax.data.token_store import TokenStore
from transformer_jax.models.inspection import attention_maps, layers_by_kind
from transformer_jax.models.interface import Module
from transformer_jax.sequence_types import Batch

PAIRS = 32
WIDTHS = (32, 64, 128)


def sharpest_entropy(model: Module, params: PyTree, batch: Batch) -> Float[Array, ""] | None:
    """The lowest entropy of a head of cross attention, as a share of ln n, that of uniform weights over n source tokens.

    Weights before dropout, over all target tokens of ``batch``. Near 1, every head of every layer is uniform. None for a model
    without cross attention.
    """
    layers = layers_by_kind(attention_maps(model, params, *batch)).get("cross")
    if layers is None:
        return None
    is_source, is_target = jnp.asarray(batch.source.ids) != PAD_ID, jnp.asarray(batch.target.ids) != PAD_ID
    shares = [_entropy_shares(weights, is_source, is_target) for weights in layers.values()]
    return jnp.min(jnp.concatenate(shares))


def _entropy_shares(
    weights: Float[Array, "B H T S"], is_source: Bool[Array, "B S"], is_target: Bool[Array, "B T"]
) -> Float[Array, " H"]:
    weights = weights.astype(jnp.float32)
    entropies = -jnp.sum(weights * jnp.log(jnp.where(weights > 0, weights, 1.0)), axis=-1)
    found = jnp.einsum("BHT,BT->H", entropies, is_target.astype(jnp.float32))
    uniform = jnp.log(is_source.sum(axis=1).astype(jnp.float32))
    return found / jnp.maximum(jnp.sum(uniform * is_target.sum(axis=1)), 1e-6)


def first_pairs(store: TokenStore, row_multiple: int) -> Batch | None:
    """The first ``PAIRS`` pairs that are not long, in one of few shapes; None where all are long."""
    longer_side = np.maximum(store.source_lengths[: 4 * PAIRS], store.target_lengths[: 4 * PAIRS])
    width = next((width for width in WIDTHS if np.mean(longer_side <= width) > 0.5), WIDTHS[-1])
    pairs = np.flatnonzero(longer_side <= width)[:PAIRS]
    if not len(pairs):
        return None
    rows = -(-PAIRS // row_multiple) * row_multiple
    offsets = np.minimum(np.arange(rows + 1), len(pairs))
    return Batch(
        token_rows(store.source_side.sentences(pairs), offsets, width),
        token_rows(store.target_side.sentences(pairs), offsets, width),
    )


def distinct_share(sources: Sequence[str], outputs: Sequence[str]) -> float:
    """The number of distinct outputs that are not empty, divided by the number of distinct sources."""
    different = dict(zip(sources, outputs, strict=True))
    return len({output for output in different.values() if output.strip()}) / max(len(different), 1)
