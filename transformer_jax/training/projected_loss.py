"""Cross entropy over a large vocabulary that never stores all logits: they are computed a few columns at a time."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Float, Hidden, Int
from transformer_jax.config import Number
from transformer_jax.mixed_precision import contract
from transformer_jax.training.losses import LossSums, label_smoothed_cross_entropy


def projected_cross_entropy(
    hidden: Hidden,
    matrix: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    weights: Float[Array, "B T"],
    smoothing: Number,
    *,
    dtype: str = "float32",
    logits_at_once: int = 2**21,
    groups: int = 1,
) -> LossSums:
    """``label_smoothed_cross_entropy`` of the logits ``hidden matrixᵀ``, made ``logits_at_once`` (or a column) at a time.

    The gradient is taken chunk by chunk together with the value, so nothing is computed twice. The rows are taken in
    ``groups`` equal parts, each with that many logits, and each adds up its own gradient of ``matrix``. With a
    group for every device that has rows of the batch, devices exchange that gradient once and not once a chunk.
    ``dtype`` is that of the products' operands, as in ``contract``.
    """
    rows, width = labels.shape
    most = max(logits_at_once * groups // (rows * len(matrix)), 1)
    # Equal chunks: of 49 columns, at most 48 at a time, 25 and 24 and not 48 and 1, which would be padded to 48.
    columns = math.ceil(width / math.ceil(width / most))
    padding = -width % columns
    # Columns, not rows: the rows may be spread over devices.
    chunked = partial(_columns_first, columns=columns, padding=padding, groups=groups)
    matrices = jnp.broadcast_to(matrix, (groups, *matrix.shape))
    return LossSums(*_chunked_loss(chunked(hidden), matrices, chunked(labels), chunked(weights), smoothing, dtype))


def _columns_first(array: Array, *, columns: int, padding: int, groups: int) -> Array:
    """[B, T, ...] to [chunks, groups, rows of a group x columns, ...], padded with zeros."""
    rows, width, *rest = array.shape
    padded = jnp.pad(array, ((0, 0), (0, padding), *((0, 0) for _ in rest)))
    split = padded.reshape(groups, rows // groups, (width + padding) // columns, columns, *rest)
    return jnp.moveaxis(split, 2, 0).reshape(-1, groups, rows // groups * columns, *rest)


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _chunked_loss(
    hidden: Array, matrices: Array, labels: Array, weights: Array, smoothing: Number, dtype: str
) -> LossSums:
    """Sums over all chunks; leaves [chunks, groups, N, ...], matrices [groups, V, D]."""

    def add(total: LossSums, chunk: tuple[Array, Array, Array]) -> tuple[LossSums, None]:
        return total + _loss_of_chunk(chunk[0], matrices, *chunk[1:], smoothing, dtype), None

    return lax.scan(add, LossSums.zero(), (hidden, labels, weights))[0]


def _loss_of_chunk(
    hidden: Array, matrices: Array, labels: Array, weights: Array, smoothing: Number, dtype: str
) -> LossSums:
    if len(matrices) == 1:
        # Not as a batched product of one: the fast kernels have no batch.
        logits = contract("GND,VD->GNV", hidden, matrices[0], dtype)
    else:
        logits = contract("GND,GVD->GNV", hidden, matrices, dtype)
    return label_smoothed_cross_entropy(logits, labels, weights, smoothing)


def _forward(
    hidden: Array, matrices: Array, labels: Array, weights: Array, smoothing: Number, dtype: str
) -> tuple[LossSums, tuple[Array, Array]]:
    def loss_and_sums(hidden: Array, matrices: Array, labels: Array, weights: Array) -> tuple[Array, LossSums]:
        sums = _loss_of_chunk(hidden, matrices, labels, weights, smoothing, dtype)
        return sums.loss, sums

    gradient_of = jax.grad(loss_and_sums, argnums=(0, 1), has_aux=True)

    def add(total: tuple[LossSums, Array], chunk: tuple[Array, Array, Array]) -> tuple[tuple[LossSums, Array], Array]:
        (to_hidden, to_matrices), sums = gradient_of(chunk[0], matrices, *chunk[1:])
        return (total[0] + sums, total[1] + to_matrices), to_hidden

    zero = LossSums.zero(), jnp.zeros_like(matrices)
    (sums, to_matrices), to_hidden = lax.scan(add, zero, (hidden, labels, weights))
    return sums, (to_hidden, to_matrices)


def _backward(dtype: str, gradients: tuple[Array, Array], cotangent: LossSums) -> tuple[Array, Array, None, None, None]:
    """Only the loss has a gradient; the other sums are reports."""
    to_hidden, to_matrices = gradients
    return to_hidden * cotangent.loss, to_matrices * cotangent.loss, None, None, None


_chunked_loss.defvjp(_forward, _backward)
