"""The Transformer (Vaswani et al. 2017, figure 1)."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float, Hidden, Int, Logits, TokenIds
from transformer_jax.layers.attention import KVCache
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.embedding import BiasedProjection, Embedding
from transformer_jax.layers.masks import SentenceMask, with_written_slots
from transformer_jax.models.interface import LogitFactors, shift_right
from transformer_jax.models.layer_stack import LayerStack, Unrolled
from transformer_jax.models.transformer_layers import DecoderLayer, EncoderLayer, LayerParts
from transformer_jax.sequence_types import DecodeCache, Tokens


class Memory(NamedTuple):
    """The encoded source: hidden states [B, S, D], and segments [B, S], 0 on padding."""

    hidden: Hidden
    segments: TokenIds


class PerBeam(NamedTuple):
    """The cache slots of the prefix of each beam [B, W, M], and the number of tokens decoded so far.

    Cache slots are never reordered: token ``t`` of the beam that was then number ``w`` stays in slot ``t W + w``, or
    ``P + t W + w`` after a prompt of P slots.
    """

    visible: Bool[Array, "B W M"]
    length: Int[Array, ""]


class PerSentence(NamedTuple):
    """State shared by the beams of a sentence: the source's caches, leaves [B, H, S, ...], and source segments [B, S]."""

    cross_attention: tuple[KVCache, ...]
    source_segments: TokenIds


class Transformer(nn.Module):
    """Encoder and decoder stacks between embeddings and logits.

    ``source_embedding``, ``target_embedding`` and ``projection`` share a matrix where they are the same module.
    """

    source_embedding: Embedding
    target_embedding: Embedding
    projection: Embedding | BiasedProjection
    source_positions: nn.Module
    target_positions: nn.Module
    parts: LayerParts
    num_encoder_layers: int
    num_decoder_layers: int
    embedding_dropout: Rate = None
    stack: LayerStack = Unrolled()

    def setup(self) -> None:
        self.encoder_layers = [EncoderLayer(self.parts) for _ in range(self.num_encoder_layers)]
        self.decoder_layers = [DecoderLayer(self.parts) for _ in range(self.num_decoder_layers)]
        self.encoder_norm = self.parts.final_norm()
        self.decoder_norm = self.parts.final_norm()
        self.sum_dropout = Dropout(self.embedding_dropout)

    def __call__(self, source: Tokens, target: Tokens, *, train: bool) -> Logits:
        """Teacher-forced logits [B, T, V]: ``decode`` after ``encode``."""
        return self.decode(target, self.encode(source, train=train), train=train)

    def encode(self, source: Tokens, *, train: bool) -> Memory:
        """Runs the encoder stack over source tokens [B, S]."""
        hidden = self._embed(self.source_embedding, self.source_positions, source.ids, source.positions, train)
        mask = SentenceMask(source.segments, source.segments)
        hidden = self.stack(self.encoder_layers, hidden, mask, train=train)
        return Memory(self.encoder_norm(hidden), jnp.asarray(source.segments))

    def decode(self, target: Tokens, memory: Memory, *, train: bool) -> Logits:
        """Logits of every token of the target."""
        return self.projection.logits(self.decode_hidden(target, memory, train=train))

    def factors(self, source: Tokens, target: Tokens, *, train: bool) -> LogitFactors:
        """The two factors of the teacher-forced logits."""
        hidden = self.decode_hidden(target, self.encode(source, train=train), train=train)
        return LogitFactors(*self.projection.factors(hidden))

    def decode_hidden(self, target: Tokens, memory: Memory, *, train: bool) -> Hidden:
        """Runs the decoder stack over target tokens [B, T] shifted right by one."""
        inputs = shift_right(target)
        hidden = self._embed(self.target_embedding, self.target_positions, inputs, target.positions, train)
        self_mask = SentenceMask(target.segments, target.segments, is_causal=True)
        cross_mask = SentenceMask(target.segments, memory.segments)
        hidden = self.stack(self.decoder_layers, hidden, memory.hidden, self_mask, cross_mask, train=train)
        return self.decoder_norm(hidden)

    def init_cache(self, memory: Memory, *, beam_width: int, max_length: int) -> DecodeCache:
        """An empty KV cache for ``max_length`` tokens of every beam, and the projected source."""
        rows, num_slots = memory.hidden.shape[0], max_length * beam_width
        caches = tuple(layer.self_attention.init_cache(rows, num_slots) for layer in self.decoder_layers)
        cross_attention = tuple(layer.cross_attention.cache_of(memory.hidden) for layer in self.decoder_layers)
        per_beam = PerBeam(jnp.zeros((rows, beam_width, num_slots), bool), jnp.zeros((), jnp.int32))
        return DecodeCache(per_beam, PerSentence(cross_attention, memory.segments), caches)

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Logits after one more token in each beam."""
        beams, sentences = cache.per_beam, cache.per_sentence
        beam_width = token_ids.shape[1]
        max_length, write_index = beams.visible.shape[2] // beam_width, beams.length * beam_width
        positions = jnp.full(token_ids.shape, beams.length, jnp.int32)
        hidden = self._embed(
            self.target_embedding, self.target_positions, token_ids, positions, train=False, length=max_length
        )
        visible = with_written_slots(beams.visible, write_index)
        cross_mask = (sentences.source_segments != 0)[:, None, :]
        caches = []
        layers = zip(self.decoder_layers, cache.kv_cache, sentences.cross_attention, strict=True)
        for layer, layer_cache, source in layers:
            hidden, layer_cache = layer.step(hidden, layer_cache, source, write_index, visible, cross_mask)
            caches.append(layer_cache)
        hidden = self.decoder_norm(hidden)
        logits = self.projection.logits(hidden)
        return logits, DecodeCache(PerBeam(visible, beams.length + 1), sentences, tuple(caches))

    def _embed(
        self,
        embedding: Embedding,
        encode_positions: nn.Module,
        token_ids: TokenIds,
        positions: TokenIds,
        train: bool,
        length: int = 0,
    ) -> Hidden:
        """Dropout(embedding + positional encoding), section 5.4."""
        length = length or token_ids.shape[1]
        summed = self.parts.constrain(embedding.embed(token_ids) + encode_positions(positions, length=length))
        return self.sum_dropout(summed, train=train).astype(self.parts.residual_dtype)
