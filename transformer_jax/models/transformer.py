"""The Transformer (Vaswani et al. 2017, figure 1)."""

from collections.abc import Iterable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float, Hidden, Int, PyTree, TokenIds
from transformer_jax.layers.attention import KVCache, LayerCache, StepMask
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.embedding import Embedding
from transformer_jax.layers.masks import SentenceMask, with_written_slots
from transformer_jax.layers.positions import score_mod_of
from transformer_jax.layers.site import Site
from transformer_jax.models.interface import EncoderDecoder, shift_right
from transformer_jax.models.layer_stack import Unrolled, layer_sites
from transformer_jax.models.transformer_layers import DecoderLayer, EncoderLayer, LayerParts, enter, leave
from transformer_jax.precision import rounding_barrier
from transformer_jax.sequence_types import DecodeCache, Tokens


class Memory(NamedTuple):
    """Hidden states [B, S, D], segments [B, S], 0 on padding, and positions [B, S]."""

    hidden: Hidden
    segments: TokenIds
    positions: TokenIds


class PerBeam(NamedTuple):
    """The cache slots of the prefixes of beams [B, W, M], and the tokens decoded so far.

    Cache slots are never reordered: token ``t`` of the beam that was then number ``w`` stays in
    slot ``t W + w``, or ``P + t W + w`` after a prompt of P slots. ``layers``: the state of layers
    that follows the beams, leaves [B, W, ...].
    """

    visible: Bool[Array, "B W M"]
    length: Int[Array, ""]
    layers: tuple[PyTree, ...]


class PerSentence(NamedTuple):
    """State that the beams of a sentence share: a ``KVCache`` a layer and source segments."""

    cross_attention: tuple[KVCache, ...]
    source_segments: TokenIds


class Transformer(EncoderDecoder):
    """Encoder and decoder stacks between embeddings and logits."""

    source_positions: nn.Module
    target_positions: nn.Module
    parts: LayerParts
    num_encoder_layers: int
    num_decoder_layers: int
    embedding_dropout: Rate
    stack: Unrolled

    def setup(self) -> None:
        encoder = Site("encoder", "self", self.num_encoder_layers, is_causal=False)
        decoder = Site("decoder", "self", self.num_decoder_layers, is_causal=True)
        self.encoder_layers = [EncoderLayer(self.parts, site) for site in layer_sites(self.stack, encoder)]
        self.decoder_layers = [DecoderLayer(self.parts, site) for site in layer_sites(self.stack, decoder)]
        self.encoder_norm = self.parts.final_norm(encoder)
        self.decoder_norm = self.parts.final_norm(decoder)
        self.sum_dropout = Dropout(self.embedding_dropout)

    def encode(self, source: Tokens, *, train: bool) -> Memory:
        """Run the encoder stack over source tokens [B, S]."""
        hidden = self._embed(self.source_embedding, self.source_positions, source.ids, source.positions, train)
        mask = SentenceMask.between(source, source, score_mod=score_mod_of(self.source_positions))
        stream = self.stack(self.encoder_layers, enter(self.encoder_layers, hidden, source.ids), mask, train=train)
        hidden = self.encoder_norm(leave(self.encoder_layers, stream))
        return Memory(hidden, jnp.asarray(source.segments), jnp.asarray(source.positions))

    def decode_hidden(self, target: Tokens, memory: Memory, *, train: bool) -> Hidden:
        """Run the decoder stack over target tokens [B, T] shifted right by one."""
        inputs = shift_right(target)
        hidden = self._embed(self.target_embedding, self.target_positions, inputs, target.positions, train)
        self_mask = SentenceMask.between(target, target, is_causal=True, score_mod=score_mod_of(self.target_positions))
        cross_mask = SentenceMask.between(target, memory)
        stream = enter(self.decoder_layers, hidden, inputs)
        stream = self.stack(self.decoder_layers, stream, memory.hidden, self_mask, cross_mask, train=train)
        return self.decoder_norm(leave(self.decoder_layers, stream))

    def init_cache(self, memory: Memory, *, beam_width: int, max_length: int) -> DecodeCache:
        """Return an empty cache for ``max_length`` tokens a beam, and the projected source."""
        rows, num_slots = memory.hidden.shape[0], max_length * beam_width
        cross_attention = tuple(
            layer.cross_attention.cache_of(memory.hidden, memory.positions) for layer in self.decoder_layers
        )
        visible = jnp.zeros((rows, beam_width, num_slots), bool)
        shared = PerSentence(cross_attention, memory.segments)
        caches = (layer.self_attention.empty_cache(rows, num_slots, beam_width) for layer in self.decoder_layers)
        return with_layer_caches(visible, jnp.zeros((), jnp.int32), shared, caches)

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        beams, sentences = cache.per_beam, cache.per_sentence
        (rows, beam_width), num_slots = token_ids.shape, beams.visible.shape[2]
        max_length, write_index = num_slots // beam_width, beams.length * beam_width
        positions = jnp.full(token_ids.shape, beams.length, jnp.int32)
        hidden = self._embed(
            self.target_embedding, self.target_positions, token_ids, positions, train=False, length=max_length
        )
        visible = with_written_slots(beams.visible, write_index)
        is_source = sentences.source_segments != 0
        slot_positions = jnp.broadcast_to(jnp.arange(num_slots) // beam_width, (rows, num_slots))
        mask = StepMask(write_index, visible, positions, slot_positions, score_mod_of(self.target_positions))
        source_positions = jnp.broadcast_to(jnp.arange(is_source.shape[1]), is_source.shape)
        source_mask = StepMask(0, is_source[:, None, :], positions, source_positions)
        stream, caches = enter(self.decoder_layers, hidden, token_ids), []
        layers = zip(self.decoder_layers, layer_caches(cache), sentences.cross_attention, strict=True)
        for layer, layer_cache, source in layers:
            stream, layer_cache = layer.step(stream, layer_cache, mask, source, source_mask)
            caches.append(layer_cache)
        logits = self.projection.logits(self.decoder_norm(leave(self.decoder_layers, stream)))
        return logits, with_layer_caches(visible, beams.length + 1, sentences, caches)

    def _embed(
        self, embedding: Embedding, encode: nn.Module, ids: TokenIds, positions: TokenIds, train: bool, length: int = 0
    ) -> Hidden:
        summed = self.parts.constrain(embedding.embed(ids) + encode(positions, length=length or ids.shape[1]))
        return rounding_barrier(self.sum_dropout(summed, train=train).astype(self.parts.residual_dtype))


def layer_caches(cache: DecodeCache) -> list[LayerCache]:
    return [LayerCache(*parts) for parts in zip(cache.kv_cache, cache.per_beam.layers, strict=True)]


def with_layer_caches(
    visible: Bool[Array, "B W M"], length: Int[Array, ""], shared: PyTree, caches: Iterable[LayerCache]
) -> DecodeCache:
    kv_caches, per_beam = zip(*caches, strict=True)
    return DecodeCache(PerBeam(visible, length, per_beam), shared, kv_caches)
