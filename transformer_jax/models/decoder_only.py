"""The decoder-only Transformer: a language model (Liu et al. 2018, section 4.2.3; Radford et al. 2019)."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import PAD_ID, Array, Bool, Float, Hidden, Int, Logits, TokenIds
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.embedding import Embedding
from transformer_jax.layers.masks import SentenceMask, prefix_mask
from transformer_jax.models.interface import LogitFactors, shift_right
from transformer_jax.models.layer_stack import LayerStack, Unrolled
from transformer_jax.models.transformer_layers import (
    EncoderLayer,
    KeysAndValues,
    LayerParts,
    attend_to_cache,
    empty_cache,
)
from transformer_jax.sequence_types import DecodeCache, Tokens


class DecoderOnlyPerBeam(NamedTuple):
    """State of each beam: keys and values, leaves [B, W, H, T, ...], and how many of the T places are filled."""

    self_attention: tuple[KeysAndValues, ...]
    length: Int[Array, ""]


class PromptStart(NamedTuple):
    """The first place [B] of the cache that a row uses: prompts end together, so shorter ones begin later."""

    start: Int[Array, "B"]


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
        self, hidden: Float[Array, "B W D"], own: KeysAndValues, length: Int[Array, ""], mask: Bool[Array, "N 1 T"]
    ) -> tuple[Float[Array, "B W D"], KeysAndValues]:
        """One more position in each beam; ``mask`` [B W, 1, T] says which places of the cache it sees."""
        cache = own

        def attend(inputs: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
            nonlocal cache
            attended, cache = attend_to_cache(self.self_attention, inputs, own, length, mask)
            return attended

        return self._feed_forward(self.self_attention_residual(hidden, attend, train=False)), cache

    def empty_cache(self, rows: int, beam_width: int, max_length: int) -> KeysAndValues:
        """Zeros for ``max_length`` keys and values of every beam."""
        return empty_cache(self.self_attention, rows, beam_width, max_length)

    def _feed_forward(self, hidden: Hidden) -> Hidden:
        return self.feed_forward_residual(hidden, lambda inputs: self.feed_forward(inputs, train=False), train=False)


class DecoderOnly(nn.Module):
    """Causal layers between an embedding and logits; ``embedding`` and ``projection`` may be one and the same module."""

    embedding: Embedding
    projection: Embedding
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
        return LogitFactors(self.hidden_states(tokens, train=train), self.projection.table)

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
        segments = (inputs != PAD_ID).astype(jnp.int32)
        start = jnp.sum(1 - segments, axis=1)
        caches = tuple(layer.empty_cache(rows, beam_width, width + max_length) for layer in self.decoder_layers)
        if width:
            positions = jnp.maximum(jnp.arange(width)[None, :] - start[:, None], 0)
            hidden = self._embed(inputs, positions, train=False, length=width + max_length)
            mask = SentenceMask(segments, segments, is_causal=True)
            filled = []
            for layer, cache in zip(self.decoder_layers, caches, strict=True):
                hidden, prefix = layer.prefill(hidden, mask)
                filled.append(KeysAndValues(*map(_with_prefix, cache, prefix)))
            caches = tuple(filled)
        return DecodeCache(DecoderOnlyPerBeam(caches, jnp.asarray(width, jnp.int32)), PromptStart(start))

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Logits of the next token after one more token in each beam."""
        beams, prompt = cache.per_beam, cache.per_sentence
        length = beams.length
        max_length = beams.self_attention[0].keys.shape[3]
        places = jnp.broadcast_to((length - prompt.start)[:, None], token_ids.shape)
        hidden = self._embed(token_ids, places, train=False, length=max_length)
        is_own = jnp.arange(max_length)[None, None, :] >= prompt.start[:, None, None]
        mask = jnp.repeat(prefix_mask(length, max_length) & is_own, token_ids.shape[1], axis=0)
        updated = []
        for layer, own in zip(self.decoder_layers, beams.self_attention, strict=True):
            hidden, own = layer.step(hidden, own, length, mask)
            updated.append(own)
        logits = self.projection.logits(self.decoder_norm(hidden))
        return logits, DecodeCache(DecoderOnlyPerBeam(tuple(updated), length + 1), prompt)

    def _embed(self, token_ids: TokenIds, positions: TokenIds, *, train: bool, length: int) -> Hidden:
        """Dropout(embedding + positional encoding), section 5.4 of Vaswani et al. 2017; all positions are below ``length``."""
        summed = self.parts.place(self.embedding.embed(token_ids) + self.positions(positions, length=length))
        return self.sum_dropout(summed, train=train)


def _with_prefix(cache_BWHTK: Array, prefix_BHPK: Array) -> Array:
    """The cache with the same first entries in each beam."""
    width = prefix_BHPK.shape[2]
    return cache_BWHTK.at[:, :, :, :width].set(prefix_BHPK[:, None])
