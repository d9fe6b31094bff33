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
from transformer_jax.layers.batch_axes import place_of_rows

Rate = float | Float[Array, ""] | None
"""A probability, maybe traced; None where nothing is dropped."""


@partial(jax.tree_util.register_dataclass, data_fields=["rate", "seeds"], meta_fields=[])
@dataclass(frozen=True)
class Drops:
    """One draw of inverted dropout (Srivastava et al. 2014, section 10): the same entries whenever it is applied.

    Zeroes each entry with probability ``rate``, a float32 (of rates from 1 - 2^-24 on, that), and divides the rest by
    ``1 - rate``. ``seeds``: uint32 [2].
    """

    # JAX also puts other things than arrays into a tree.
    rate: PyTree
    seeds: PyTree

    def __call__(self, inputs: Array) -> Array:
        """All local rows [B, ...]."""
        return self.block(inputs, [0] * inputs.ndim, inputs.shape)

    def block(self, inputs: Array, start: Sequence[int | Array], shape: tuple[int, ...]) -> Array:
        """The part ``inputs`` of an array of ``shape``, all local rows, whose first entry is at ``start``: as in the whole."""
        first, rows = place_of_rows(shape[0])
        return _dropped((rows, *shape[1:]), inputs, self.rate, self.seeds, (first + start[0], *start[1:]))


class Dropout(nn.Module):
    """Dropout with a new key from the stream ``dropout`` at every call."""

    rate: Rate

    def draw(self, *, train: bool) -> Drops | None:
        """Draws the elements to drop; None, nothing, unless ``train``."""
        if not train or self.rate is None:
            return None
        return draw(self.rate, self.make_rng("dropout"))

    def __call__(self, inputs: Array, *, train: bool) -> Array:
        """Returns ``inputs`` unchanged unless ``train``; any shape."""
        drops = self.draw(train=train)
        return inputs if drops is None else drops(inputs)


def draw(rate: float | Float[Array, ""], key: Array) -> Drops:
    """The draw that belongs to a key."""
    return Drops(rate, jax.random.bits(key, (2,), jnp.uint32))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _dropped(whole: tuple[int, ...], inputs: Array, rate: PyTree, seeds: PyTree, start: tuple) -> Array:
    """``Drops.block``; its gradient, linear as it is, draws the same bits again, so that no mask is stored."""
    # The largest float32 below 2^32: what is above does not fit 32 bits.
    threshold = jnp.minimum(rate * 2.0**32, 2.0**32 - 2.0**8).astype(jnp.uint32)
    kept = hashed_bits(seeds, inputs.shape, start, whole) >= threshold
    # One division in all, not one an entry.
    return jnp.where(kept, inputs * (1.0 / (1.0 - rate)), 0.0).astype(inputs.dtype)


def _forward(
    whole: tuple[int, ...], inputs: Array, rate: PyTree, seeds: PyTree, start: tuple
) -> tuple[Array, tuple[PyTree, PyTree, tuple]]:
    return _dropped(whole, inputs, rate, seeds, start), (rate, seeds, start)


def _backward(
    whole: tuple[int, ...], draws: tuple[PyTree, PyTree, tuple], gradient: Array
) -> tuple[Array, None, None, None]:
    rate, seeds, start = draws
    # Otherwise the compiler sees that the bits are the same, and stores them.
    return _dropped(whole, gradient, rate, lax.optimization_barrier(seeds), start), None, None, None


_dropped.defvjp(_forward, _backward)


def hashed_bits(
    seeds: UInt32[Array, "2"], shape: tuple[int, ...], start: Sequence[int | Array], whole: tuple[int, ...]
) -> UInt32[Array, "..."]:
    """32 random bits an entry: a hash of the seeds and of its index in an array of shape ``whole``, uint32 of ``shape``.

    A counter-based generator such as ``jax.random.bits``, with a far shorter mixing function: good enough for masks, and an
    elementwise expression that the compiler fuses into whatever consumes it, where threefry's twenty rounds run as loops
    over memory (measured on a CPU: 0.4 ms against 42 ms for four million entries). Depends on nothing but seeds and index, so
    any sharding, and any division into blocks, gives the same bits. Of more than 2^32 entries the first axes count apart.
    """
    first = next(axis for axis in range(len(whole) + 1) if math.prod(whole[axis:]) <= 2**32)
    bits = _mix(_index(shape, start, whole, range(first, len(shape))) ^ seeds[0]) + seeds[1]
    return _mix(bits + _mix(_index(shape, start, whole[:first], range(first)))) if first else _mix(bits)


def _index(shape: tuple[int, ...], start: Sequence[int | Array], whole: tuple[int, ...], axes: range) -> Array:
    """Index of each entry along ``axes``, the last of ``whole``."""
    index = jnp.zeros(shape, jnp.uint32)
    for axis in axes:
        stride = jnp.uint32(math.prod(whole[axis + 1 :]) % 2**32)
        place = lax.broadcasted_iota(jnp.uint32, shape, axis) + jnp.asarray(start[axis], jnp.uint32)
        index = index + place * stride
    return index


def _mix(bits: Array) -> Array:
    """The finalizer of MurmurHash3 (Appleby 2011): a bijection of 32 bits in which every input bit moves every output bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
