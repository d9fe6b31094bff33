"""The decoder-only Transformer: a language model (Liu et al. 2018, section 4.2.3; Radford et al. 2019)."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import PAD_ID, Array, Bool, Float, Hidden, Int, Logits, TokenIds
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.embedding import BiasedProjection, Embedding
from transformer_jax.layers.masks import SentenceMask, with_own_slots
from transformer_jax.models.interface import LogitFactors, shift_right
from transformer_jax.models.layer_stack import LayerStack, Unrolled
from transformer_jax.models.transformer_layers import (
    EncoderLayer,
    KeysAndValues,
    LayerParts,
    attend_to_slots,
    empty_slots,
)
from transformer_jax.sequence_types import DecodeCache, Tokens


class DecoderOnlyPerBeam(NamedTuple):
    """The slots that hold the prompt and the continuation of a beam [B, W, P + T W], and the length of continuations.

    Slots, leaves [B, H, P + T W, ...], stay where they were written: first the prompt, which all beams share, then token ``t``
    of the beam that was then number ``w`` in slot ``P + t W + w``.
    """

    visible: Bool[Array, "B W M"]
    length: Int[Array, ""]


class Prompt(NamedTuple):
    """The places [B, P] that a prompt fills: prompts end together, so shorter ones begin later."""

    is_filled: Bool[Array, "B P"]


class CausalLayer(EncoderLayer):
    """Self-attention, then feed-forward; causal by the mask that it is given."""

    def prefill(self, hidden: Hidden, mask: SentenceMask) -> tuple[Hidden, KeysAndValues]:
        """[B, P, D] to [B, P, D], without dropout, and the keys and values of these positions, leaves [B, H, P, ...]."""
        cache = None

        def attend(inputs: Hidden) -> Hidden:
            nonlocal cache
            cache = KeysAndValues(*self.self_attention.cached_memory(inputs))
            return self.self_attention(inputs, inputs, mask, train=False)

        hidden = self._feed_forward(self.self_attention_residual(hidden, attend, train=False))
        return hidden, cache  # type: ignore[return-value]  # the residual has called attend

    def step(
        self, hidden: Float[Array, "B W D"], own: KeysAndValues, first: Int[Array, ""], visible: Bool[Array, "B W M"]
    ) -> tuple[Float[Array, "B W D"], KeysAndValues]:
        """One more position in each beam, whose keys and values become the slots from ``first`` on."""
        slots = own

        def attend(inputs: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
            nonlocal slots
            attended, slots = attend_to_slots(self.self_attention, inputs, own, first, visible)
            return attended

        return self._feed_forward(self.self_attention_residual(hidden, attend, train=False)), slots

    def empty_slots(self, rows: int, count: int) -> KeysAndValues:
        """Zeros for ``count`` keys and values of every sentence."""
        return empty_slots(self.self_attention, rows, count)

    def _feed_forward(self, hidden: Hidden) -> Hidden:
        return self.feed_forward_residual(hidden, lambda inputs: self.feed_forward(inputs, train=False), train=False)


class DecoderOnly(nn.Module):
    """Causal layers between an embedding and logits; ``embedding`` and ``projection`` may be one and the same module."""

    embedding: Embedding
    projection: Embedding | BiasedProjection
    positions: nn.Module
    parts: LayerParts
    num_layers: int
    embedding_dropout: Rate = None
    stack: LayerStack = Unrolled()

    def setup(self) -> None:
        self.decoder_layers = [CausalLayer(self.parts) for _ in range(self.num_layers)]
        self.decoder_norm = self.parts.final_norm()
        self.sum_dropout = Dropout(self.embedding_dropout)

    def __call__(self, tokens: Tokens, *, train: bool) -> Logits:
        """Logits [B, T, V] of every token of ``tokens`` given those before it in its segment."""
        return self.projection.logits(self.hidden_states(tokens, train=train))

    def factors(self, tokens: Tokens, *, train: bool) -> LogitFactors:
        """The two factors of the logits."""
        return LogitFactors(*self.projection.factors(self.hidden_states(tokens, train=train)))

    def hidden_states(self, tokens: Tokens, *, train: bool) -> Hidden:
        """Runs the layers over ``tokens`` [B, T] shifted right by one."""
        mask = SentenceMask(tokens.segments, tokens.segments, is_causal=True)
        length = tokens.ids.shape[1]
        hidden = self._embed(shift_right(tokens), tokens.positions, train=train, length=length)
        return self.decoder_norm(self.stack(self.decoder_layers, hidden, mask, train=train))

    def init_cache(self, inputs: TokenIds, *, beam_width: int, max_length: int) -> DecodeCache:
        """The cache after ``inputs`` [B, P], one pass over all of them, with room for ``max_length`` more in each beam.

        ``inputs`` begin with BOS and end together: shorter rows have PAD on their left. P may be 0.
        """
        rows, width = inputs.shape
        inputs = jnp.asarray(inputs)
        is_filled = inputs != PAD_ID
        count = width + max_length * beam_width
        slots = tuple(layer.empty_slots(rows, count) for layer in self.decoder_layers)
        if width:
            segments = is_filled.astype(jnp.int32)
            positions = jnp.maximum(jnp.cumsum(segments, axis=1) - 1, 0)
            hidden = self._embed(inputs, positions, train=False, length=width + max_length)
            mask = SentenceMask(segments, segments, is_causal=True)
            filled = []
            for layer, own in zip(self.decoder_layers, slots, strict=True):
                hidden, prompt = layer.prefill(hidden, mask)
                filled.append(own.with_slots(0, prompt))
            slots = tuple(filled)
        visible = jnp.zeros((rows, beam_width, count), bool).at[:, :, :width].set(is_filled[:, None])
        return DecodeCache(DecoderOnlyPerBeam(visible, jnp.zeros((), jnp.int32)), Prompt(is_filled), slots)

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Logits of the next token after one more token in each beam."""
        beams, prompt = cache.per_beam, cache.per_sentence
        beam_width, width = token_ids.shape[1], prompt.is_filled.shape[1]
        max_length = width + (beams.visible.shape[2] - width) // beam_width
        first = width + beams.length * beam_width
        positions = jnp.sum(prompt.is_filled, axis=1)[:, None] + beams.length
        hidden = self._embed(token_ids, jnp.broadcast_to(positions, token_ids.shape), train=False, length=max_length)
        visible = with_own_slots(beams.visible, first)
        slots = []
        for layer, own in zip(self.decoder_layers, cache.slots, strict=True):
            hidden, own = layer.step(hidden, own, first, visible)
            slots.append(own)
        logits = self.projection.logits(self.decoder_norm(hidden))
        return logits, DecodeCache(DecoderOnlyPerBeam(visible, beams.length + 1), prompt, tuple(slots))

    def _embed(self, token_ids: TokenIds, positions: TokenIds, *, train: bool, length: int) -> Hidden:
        """Dropout(embedding + positional encoding), section 5.4 of Vaswani et al. 2017; all positions are below ``length``."""
        summed = self.parts.place(self.embedding.embed(token_ids) + self.positions(positions, length=length))
        return self.sum_dropout(summed, train=train).astype(self.parts.stream)
