"""One encoder layer and one decoder layer (Vaswani et al. 2017, section 3.1)."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, Hidden, Int
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.masks import SentenceMask


class LayerParts(NamedTuple):
    """Makers of the parts of a layer: another part, another variant. None of them takes an argument.

    ``place`` says where the hidden states [B, L, D] between the parts live, and changes nothing else; ``stream`` is their type
    between layers.
    """

    attention: Callable[[], MultiHeadAttention]
    feed_forward: Callable[[], nn.Module]
    residual: Callable[[], nn.Module]
    final_norm: Callable[[], Callable[[Hidden], Hidden]]
    place: Callable[[Hidden], Hidden]
    stream: str = "float32"


class KeysAndValues(NamedTuple):
    """Projected keys [B, H, K, M] and values [B, H, M, U] of one attention.

    In this order a step of decoding multiplies them as they are; in another it would turn them at every step (on a CPU that
    made the scores of keys [B, H, M, K] three times slower, of keys [B, M, H, K] thirty times).
    """

    keys: Float[Array, "B H K M"]
    values: Float[Array, "B H M U"]

    def with_slots(self, first: Int[Array, ""] | int, new: "KeysAndValues") -> "KeysAndValues":
        """The same with ``new`` in the positions from ``first`` on."""
        keys = lax.dynamic_update_slice_in_dim(self.keys, new.keys, first, axis=3)
        return KeysAndValues(keys, lax.dynamic_update_slice_in_dim(self.values, new.values, first, axis=2))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    parts: LayerParts

    def setup(self) -> None:
        self.self_attention = self.parts.attention()
        self.self_attention_residual = self.parts.residual()
        self.feed_forward = self.parts.feed_forward()
        self.feed_forward_residual = self.parts.residual()

    def __call__(self, hidden: Hidden, mask: SentenceMask, *, train: bool) -> Hidden:
        """[B, S, D] to [B, S, D]."""
        hidden = self.self_attention_residual(
            hidden, lambda inputs: self.self_attention(inputs, inputs, mask, train=train), train=train
        )
        hidden = self.parts.place(hidden)
        return self.parts.place(
            self.feed_forward_residual(hidden, lambda inputs: self.feed_forward(inputs, train=train), train=train)
        )


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, then feed-forward."""

    parts: LayerParts

    def setup(self) -> None:
        self.self_attention = self.parts.attention()
        self.self_attention_residual = self.parts.residual()
        self.cross_attention = self.parts.attention()
        self.cross_attention_residual = self.parts.residual()
        self.feed_forward = self.parts.feed_forward()
        self.feed_forward_residual = self.parts.residual()

    def __call__(
        self,
        hidden: Hidden,
        memory: Float[Array, "B S D"],
        self_mask: SentenceMask,
        cross_mask: SentenceMask,
        *,
        train: bool,
    ) -> Hidden:
        """[B, T, D] to [B, T, D], teacher-forced."""
        return self._wrapped(
            hidden,
            lambda inputs: self.self_attention(inputs, inputs, self_mask, train=train),
            lambda inputs: self.cross_attention(inputs, memory, cross_mask, train=train),
            train=train,
        )

    def step(
        self,
        hidden_BWD: Float[Array, "B W D"],
        own: KeysAndValues,
        first: Int[Array, ""],
        source: KeysAndValues,
        visible: Bool[Array, "B W M"],
        cross_mask: Bool[Array, "B 1 S"],
    ) -> tuple[Float[Array, "B W D"], KeysAndValues]:
        """One more position in each beam, whose keys and values become the slots from ``first`` on of ``own``.

        The beams of a sentence query its slots and its source together, as positions would.
        """
        slots = own

        def attend_to_own(inputs: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
            nonlocal slots
            attended, slots = attend_to_slots(self.self_attention, inputs, own, first, visible)
            return attended

        def attend_to_source(inputs: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
            return self.cross_attention.attend(inputs, source.keys, source.values, cross_mask, train=False)

        return self._wrapped(hidden_BWD, attend_to_own, attend_to_source, train=False), slots

    def empty_slots(self, rows: int, count: int) -> KeysAndValues:
        """Zeros for ``count`` own keys and values of every sentence."""
        return empty_slots(self.self_attention, rows, count)

    def project_source(self, memory: Float[Array, "B S D"]) -> KeysAndValues:
        """Keys and values of the encoded source, projected once a sentence."""
        return KeysAndValues(*self.cross_attention.cached_memory(memory))

    def _wrapped(
        self,
        hidden: Hidden,
        attend_to_own: Callable[[Hidden], Hidden],
        attend_to_source: Callable[[Hidden], Hidden],
        *,
        train: bool,
    ) -> Hidden:
        place = self.parts.place
        hidden = place(self.self_attention_residual(hidden, attend_to_own, train=train))
        hidden = place(self.cross_attention_residual(hidden, attend_to_source, train=train))
        return place(
            self.feed_forward_residual(hidden, lambda inputs: self.feed_forward(inputs, train=train), train=train)
        )


def attend_to_slots(
    attention: MultiHeadAttention,
    inputs: Float[Array, "B W D"],
    own: KeysAndValues,
    first: Int[Array, ""],
    visible: Bool[Array, "B W M"],
) -> tuple[Float[Array, "B W D"], KeysAndValues]:
    """Self-attention of one more position in each beam, and its slots with what it wrote from ``first`` on.

    The beams of a sentence query its M slots together, as positions would; ``visible`` has the slots of a beam's own prefix.
    """
    slots = own.with_slots(first, KeysAndValues(*attention.cached_memory(inputs)))
    return attention.attend_to_slots(inputs, slots.keys, slots.values, visible, first), slots


def empty_slots(attention: MultiHeadAttention, rows: int, count: int) -> KeysAndValues:
    """Zeros for ``count`` keys and values of every sentence."""
    keys = jnp.zeros((rows, attention.num_heads, attention.key_size, count), attention.precision.compute)
    return KeysAndValues(
        keys, jnp.zeros((rows, attention.num_heads, count, attention.value_size), attention.precision.compute)
    )
