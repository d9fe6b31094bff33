"""Cross entropy over a large vocabulary that never stores all logits, but chunks of columns."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float, Hidden, Int
from transformer_jax.config import Number
from transformer_jax.precision import FLOAT32, Precision, einsum, einsum_gradients
from transformer_jax.training.losses import LossSums, label_smoothed_cross_entropy, token_losses


class LogitBlocks(NamedTuple):
    """Division of the logits of a batch.

    A group of rows computes at most ``at_once`` logits at a time, but at least one column of
    positions. The vocabulary is padded to a multiple of ``vocabulary_multiple``, whole tiles of a
    product.
    """

    at_once: int = 2**21
    vocabulary_multiple: int = 1


SMALL_BLOCKS = LogitBlocks()
# On a CPU the logits of a chunk fit into the cache; elsewhere chunks are large, for large products.
# Each chunk reads and writes the gradient of the whole matrix, so a GPU, which has the memory,
# takes larger ones.
LOGIT_BLOCKS = {"cpu": LogitBlocks(2**21, 1), "gpu": LogitBlocks(2**30, 128)}
LOGIT_BLOCKS_ELSEWHERE = LogitBlocks(2**26, 128)
# Several float32 arrays of all logits of a chunk may exist for the gradients of loss terms.
MAX_LOGITS_WITH_TERMS = 2**28


def logit_blocks(mesh: Mesh, platform: str) -> LogitBlocks:
    """Return the division of the logits of the loss on a device of ``mesh``."""
    blocks = LOGIT_BLOCKS.get(platform, LOGIT_BLOCKS_ELSEWHERE)
    # Padding a vocabulary that is split over devices would move it between them.
    return blocks._replace(vocabulary_multiple=1) if mesh.shape["tensor"] > 1 else blocks


LogitTerms = Mapping[str, Partial]
"""Loss terms by name: function(*arrays, logits [..., V], labels [...], *passes) of tokens [...].

Logits are float32. A pass is a pair of the logits and training losses of another pass.
"""


class _LogitOptions(NamedTuple):
    """Options of the logits of a chunk; ``vocabulary`` is its size without padding."""

    vocabulary: int
    precision: Precision


def projected_cross_entropy(
    hidden: Hidden,
    matrix: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    weights: Float[Array, "B T"],
    smoothing: Number,
    *,
    precision: Precision = FLOAT32,
    blocks: LogitBlocks = SMALL_BLOCKS,
    groups: tuple[int, int] = (1, 1),
    logit_mod: Partial | None = None,
    terms: LogitTerms | None = None,
    further: Sequence[Hidden] = (),
) -> LossSums:
    """Return ``label_smoothed_cross_entropy`` of the logits ``hidden matrixᵀ``.

    Only ``blocks.at_once`` logits exist at a time. Value and gradient of a chunk of columns are
    computed together, so nothing is computed twice. ``groups``: numbers of equal parts of rows and
    columns, which add up their gradients of ``matrix`` apart. With a part for every device that has
    tokens of the batch, devices exchange that gradient once, and not once a chunk. ``precision``:
    of the products and of the logits, as in ``einsum``. ``logit_mod``: see ``LogitFactors``.
    ``terms`` are added to the loss and are the extras. They also read the logits of the ``further``
    passes.
    """
    row_groups, column_groups = groups
    at_once = min(blocks.at_once, MAX_LOGITS_WITH_TERMS) if terms else blocks.at_once
    chunked = _chunks_of(labels.shape, at_once // (1 + len(further)), len(matrix), groups)
    padded = jnp.pad(matrix, ((0, -len(matrix) % blocks.vocabulary_multiple), (0, 0)))
    # One group has no batch axis: the fast kernels have none.
    count = row_groups * column_groups
    matrices = padded if count == 1 else jnp.broadcast_to(padded, (count, *padded.shape))
    options = _LogitOptions(len(matrix), precision.of_logits)
    arrays = tuple(map(chunked, (hidden, *further))), matrices, chunked(labels), chunked(weights), smoothing
    return LossSums(*_chunked_loss(options, _Chunks(*arrays, terms or {}, logit_mod)))


def _chunks_of(
    shape: tuple[int, ...], at_once: int, vocabulary: int, groups: tuple[int, int]
) -> Callable[[Array], Array]:
    """Return ``_columns_first`` for chunks of at most ``at_once`` logits in a group of rows."""
    row_groups, column_groups = groups
    rows, width = shape[0], -(-shape[1] // column_groups)
    max_columns = max(at_once * row_groups // (rows * vocabulary), 1)
    # Equal chunks: of 49 columns, at most 48 at a time, 25 and 24 and not 48 and 1, which would be
    # padded to 48.
    columns = math.ceil(width / math.ceil(width / max_columns))
    padding = -shape[1] % column_groups, -width % columns
    # Columns, not rows: the rows may be spread over devices.
    return partial(_columns_first, columns=columns, padding=padding, groups=groups)


def _columns_first(array: Array, *, columns: int, padding: tuple[int, int], groups: tuple[int, int]) -> Array:
    """Return [B, T, ...] as [chunks, groups, rows of a group x columns, ...]."""
    rows, _, *rest = array.shape
    row_groups, column_groups = groups
    whole = jnp.pad(array, ((0, 0), (0, padding[0]), *((0, 0) for _ in rest)))
    # Each group for itself: groups may lie on different devices.
    parts = jnp.pad(
        whole.reshape(rows, column_groups, -1, *rest), ((0, 0), (0, 0), (0, padding[1]), *((0, 0) for _ in rest))
    )
    split = parts.reshape(row_groups, rows // row_groups, column_groups, -1, columns, *rest)
    transposed = jnp.moveaxis(split, (3, 0, 2), (0, 1, 2))
    return transposed.reshape(-1, row_groups * column_groups, rows // row_groups * columns, *rest)


class _Chunks(NamedTuple):
    """Arrays of all chunks [chunks, groups, N, ...], and the rest.

    ``hidden``: of the pass of the loss, then of further passes. ``matrices``: [groups, V, D], or
    [V, D] for one group.
    """

    hidden: tuple[Array, ...]
    matrices: Array
    labels: Array
    weights: Array
    smoothing: Number
    terms: LogitTerms
    logit_mod: Partial | None


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chunked_loss(options: _LogitOptions, chunks: _Chunks) -> LossSums:
    """Sum over all chunks."""
    rounded = options.precision.rounded(chunks.matrices)

    def add(total: LossSums, chunk: tuple[tuple[Array, ...], Array, Array]) -> tuple[LossSums, None]:
        products = tuple(einsum(_subscripts(rounded), hidden, rounded, options.precision) for hidden in chunk[0])
        return total + _chunk_loss(products, chunks.logit_mod, options, chunks, chunk)[1], None

    return lax.scan(add, LossSums.zero(chunks.terms), (chunks.hidden, chunks.labels, chunks.weights))[0]


def _chunk_loss(
    products: tuple[Array, ...],
    logit_mod: Partial | None,
    options: _LogitOptions,
    chunks: _Chunks,
    chunk: tuple[tuple[Array, ...], Array, Array],
) -> tuple[Array, LossSums]:
    """Return the loss and the sums over a chunk (hidden states, labels, weights)."""
    logits, *further = (_modified(logit_mod, product, options.vocabulary) for product in products)
    _, labels, weights = chunk

    def wide(logits: Array) -> Array:
        return logits[..., : options.vocabulary].astype(jnp.float32)

    sums = label_smoothed_cross_entropy(logits, labels, weights, chunks.smoothing, options.vocabulary)
    passes = [(wide(other), token_losses(options.vocabulary, other, labels, chunks.smoothing)[0]) for other in further]
    for name, term in chunks.terms.items():
        sums = sums.with_term(name, jnp.sum(term(wide(logits), labels, *passes) * weights))
    return sums.loss, sums


def _modified(logit_mod: Partial | None, logits: Array, vocabulary: int) -> Array:
    """Modify logits in float32 and return them in their type; padding stays zero."""
    if logit_mod is None:
        return logits
    is_real = jnp.arange(logits.shape[-1]) < vocabulary
    return jnp.where(is_real, logit_mod(logits.astype(jnp.float32)), 0.0).astype(logits.dtype)


def _subscripts(matrices: Array) -> str:
    return "GND,VD->GNV" if matrices.ndim == 2 else "GND,GVD->GNV"


def _chunked_loss_forward(options: _LogitOptions, chunks: _Chunks) -> tuple[LossSums, tuple]:
    """Return the sums, and the gradients of hidden states, matrices and ``logit_mod``."""
    precision, matrices, logit_mod = options.precision, chunks.matrices, chunks.logit_mod
    # Once, and not in every chunk.
    rounded = precision.rounded(matrices)

    def add(total: tuple, chunk: tuple[tuple[Array, ...], Array, Array]) -> tuple[tuple, tuple[Array, ...]]:
        factors = [(precision.rounded(hidden), rounded) for hidden in chunk[0]]
        products = tuple(einsum(_subscripts(rounded), *factor, precision) for factor in factors)
        gradient = jax.grad(_chunk_loss, (0, 1), has_aux=True)
        (of_products, of_mod), sums = gradient(products, logit_mod, options, chunks, chunk)
        dtypes = str(chunks.hidden[0].dtype), str(matrices.dtype)
        of_factors = [
            einsum_gradients(_subscripts(rounded), precision, dtypes, factor, gradient)
            for factor, gradient in zip(factors, of_products, strict=True)
        ]
        grad_hidden, grad_matrices = zip(*of_factors, strict=True)
        totals = total[0] + sums, sum(grad_matrices, total[1]), jax.tree.map(jnp.add, total[2], of_mod)
        return totals, grad_hidden

    zero = LossSums.zero(chunks.terms), jnp.zeros_like(matrices), jax.tree.map(jnp.zeros_like, logit_mod)
    (sums, grad_matrices, grad_logit_mod), grad_hidden = lax.scan(
        add, zero, (chunks.hidden, chunks.labels, chunks.weights)
    )
    return sums, (grad_hidden, grad_matrices, grad_logit_mod)


def _chunked_loss_backward(options: _LogitOptions, gradients: tuple, cotangent: LossSums) -> tuple[_Chunks]:
    """Scale the gradients of the loss; the other sums have none."""
    hidden, matrices, logit_mod = jax.tree.map(lambda leaf: (leaf * cotangent.loss).astype(leaf.dtype), gradients)
    return (_Chunks(hidden, matrices, None, None, None, None, logit_mod),)  # type: ignore[arg-type]


_chunked_loss.defvjp(_chunked_loss_forward, _chunked_loss_backward)
