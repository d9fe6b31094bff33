"""Dropout whose random numbers cost next to nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, PyTree, UInt32


@partial(jax.tree_util.register_dataclass, data_fields=["seeds"], meta_fields=["rate"])
@dataclass(frozen=True)
class Drops:
    """One draw of inverted dropout (Srivastava et al. 2014, section 10): the same entries whenever it is applied.

    Zeroes each entry with probability ``rate`` (to within 2^-32) and divides the rest by ``1 - rate``. ``seeds``: uint32 [2].
    """

    rate: float
    # JAX also puts other things than arrays into a tree.
    seeds: PyTree

    def __call__(self, inputs: Array) -> Array:
        """The whole array, any shape."""
        return self.block(inputs, [0] * inputs.ndim, inputs.shape)

    def block(self, inputs: Array, start: Sequence[int | Array], shape: tuple[int, ...]) -> Array:
        """The part ``inputs`` of an array of ``shape`` whose first entry is at ``start``: as in the whole."""
        threshold = jnp.uint32(min(round(self.rate * 2**32), 2**32 - 1))
        kept = hashed_bits(self.seeds, inputs.shape, start, shape) >= threshold
        return jnp.where(kept, inputs / (1.0 - self.rate), 0.0)


class Dropout(nn.Module):
    """Draws from the stream ``dropout``, anew at every call."""

    rate: float

    def draw(self, *, train: bool) -> Drops | None:
        """What is dropped; None, nothing, unless ``train``."""
        if not train or self.rate == 0.0:
            return None
        return draw(self.rate, self.make_rng("dropout"))

    def __call__(self, inputs: Array, *, train: bool) -> Array:
        """Returns ``inputs`` unchanged unless ``train``; any shape."""
        drops = self.draw(train=train)
        return inputs if drops is None else drops(inputs)


def draw(rate: float, key: Array) -> Drops:
    """The draw that belongs to a key."""
    return Drops(rate, jax.random.bits(key, (2,), jnp.uint32))


def hashed_bits(
    seeds: UInt32[Array, "2"], shape: tuple[int, ...], start: Sequence[int | Array], whole: tuple[int, ...]
) -> UInt32[Array, "..."]:
    """32 random bits an entry: a hash of the seeds and of its index in an array of shape ``whole``, uint32 of ``shape``.

    A counter-based generator such as ``jax.random.bits``, with a far shorter mixing function: good enough for masks, and an
    elementwise expression that the compiler fuses into whatever consumes it, where threefry's twenty rounds run as loops
    over memory (measured on a CPU: 0.4 ms against 42 ms for four million entries). Depends on nothing but seeds and index, so
    any sharding, and any division into blocks, gives the same bits. Beyond 2^32 entries the bits repeat.
    """
    index = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(whole[axis + 1 :]) % 2**32)
        place = lax.broadcasted_iota(jnp.uint32, shape, axis) + jnp.asarray(start[axis], jnp.uint32)
        index = index + place * stride
    return _mix(_mix(index ^ seeds[0]) + seeds[1])


def _mix(bits: Array) -> Array:
    """The finaliser of MurmurHash3 (Appleby 2011): a bijection of 32 bits in which every input bit moves every output bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
