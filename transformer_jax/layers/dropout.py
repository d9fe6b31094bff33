"""Dropout with cheap random numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Float, PyTree, UInt32
from transformer_jax.layers.mesh_axes import local_rows

Rate = float | Float[Array, ""] | None
"""A probability, maybe traced; None drops nothing."""


@partial(jax.tree_util.register_dataclass, data_fields=["rate", "seeds"], meta_fields=[])
@dataclass(frozen=True)
class DropoutMask:
    """Inverted dropout (Srivastava et al. 2014, section 10) of the same entries at every call.

    Zeroes entries with probability ``rate`` (float32, at most 1 - 2^-24) and divides the rest by
    ``1 - rate``. ``seeds``: uint32 [2]. The mask is computed where it is used and never stored.
    """

    # JAX also puts other objects than arrays into a tree.
    rate: PyTree
    seeds: PyTree

    def __call__(self, inputs: Array) -> Array:
        return self.block(inputs, [0] * inputs.ndim, inputs.shape)

    def block(self, inputs: Array, start: Sequence[int | Array], shape: tuple[int, ...]) -> Array:
        """Drop entries of a block at ``start`` of an array of ``shape``, as ``__call__`` would."""
        first_row, rows = local_rows(shape[0])
        return _dropped((rows, *shape[1:]), inputs, self.rate, self.seeds, (first_row + start[0], *start[1:]))


class Dropout(nn.Module):
    """Dropout with a new key from the Flax RNG ``dropout`` at every call."""

    rate: Rate

    def mask(self, *, train: bool) -> DropoutMask | None:
        """Return a new mask if ``train``, else None, which drops nothing."""
        if not train or self.rate is None:
            return None
        return dropout_mask(self.rate, self.make_rng("dropout"))

    def __call__(self, inputs: Array, *, train: bool) -> Array:
        mask = self.mask(train=train)
        return inputs if mask is None else mask(inputs)


def dropout_mask(rate: float | Float[Array, ""], key: Array) -> DropoutMask:
    return DropoutMask(rate, jax.random.bits(key, (2,), jnp.uint32))


def dropout_keys(key: Array, count: int) -> Array:
    """Return keys for ``count`` local rows, by their index in the batch."""
    first, _ = local_rows(count)
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(first + jnp.arange(count))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _dropped(whole: tuple[int, ...], inputs: Array, rate: PyTree, seeds: PyTree, start: tuple) -> Array:
    """Drop entries. The gradient computes the same bits again, so that no mask is stored."""
    # At most the largest float32 below 2^32: a larger threshold does not fit 32 bits.
    threshold = jnp.minimum(rate * 2.0**32, 2.0**32 - 2.0**8).astype(jnp.uint32)
    kept = hashed_bits(seeds, inputs.shape, start, whole) >= threshold
    # One division for the array instead of one an entry.
    return jnp.where(kept, inputs * (1.0 / (1.0 - rate)), 0.0).astype(inputs.dtype)


def _dropped_forward(
    whole: tuple[int, ...], inputs: Array, rate: PyTree, seeds: PyTree, start: tuple
) -> tuple[Array, tuple[PyTree, PyTree, tuple]]:
    return _dropped(whole, inputs, rate, seeds, start), (rate, seeds, start)


def _dropped_backward(
    whole: tuple[int, ...], residuals: tuple[PyTree, PyTree, tuple], gradient: Array
) -> tuple[Array, None, None, None]:
    rate, seeds, start = residuals
    # Otherwise the compiler sees that the bits are the same, and stores them.
    return _dropped(whole, gradient, rate, lax.optimization_barrier(seeds), start), None, None, None


_dropped.defvjp(_dropped_forward, _dropped_backward)


def hashed_bits(
    seeds: UInt32[Array, "2"], shape: tuple[int, ...], start: Sequence[int | Array], whole: tuple[int, ...]
) -> UInt32[Array, "..."]:
    """Return 32 random bits an entry of ``shape``, hashed from seeds and its index in ``whole``.

    A counter-based generator with a far shorter mixing function than threefry: good enough for
    masks, and elementwise, so that the compiler fuses it (on a CPU 0.4 ms against 42 ms for four
    million entries). Bits depend on seeds and index only, so any sharding and any division into
    blocks gives the same. Beyond 2^32 entries the first axes are hashed separately.
    """
    first = next(axis for axis in range(len(whole) + 1) if math.prod(whole[axis:]) <= 2**32)
    bits = _mix(_index(shape, start, whole, range(first, len(shape))) ^ seeds[0]) + seeds[1]
    return _mix(bits + _mix(_index(shape, start, whole[:first], range(first)))) if first else _mix(bits)


def _index(shape: tuple[int, ...], start: Sequence[int | Array], whole: tuple[int, ...], axes: range) -> Array:
    """Return the index of entries along ``axes``, the last of ``whole``."""
    index = jnp.zeros(shape, jnp.uint32)
    for axis in axes:
        stride = jnp.uint32(math.prod(whole[axis + 1 :]) % 2**32)
        coordinate = lax.broadcasted_iota(jnp.uint32, shape, axis) + jnp.asarray(start[axis], jnp.uint32)
        index = index + coordinate * stride
    return index


def _mix(bits: Array) -> Array:
    """Return MurmurHash3's finalizer (Appleby 2011): every input bit moves every output bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
