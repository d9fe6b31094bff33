"""The decoder-only Transformer, a language model (Liu et al. 2018; Radford et al. 2019)."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import PAD_ID, Array, Bool, Float, Hidden, Int, Logits, TokenIds
from transformer_jax.layers.attention import StepMask
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.embedding import Embedding, LogitFactors, OutputLayer
from transformer_jax.layers.masks import SentenceMask, with_written_slots
from transformer_jax.layers.positions import score_mod_of
from transformer_jax.layers.site import Site
from transformer_jax.models.interface import shift_right
from transformer_jax.models.layer_stack import Unrolled, layer_sites
from transformer_jax.models.transformer import layer_caches, with_layer_caches
from transformer_jax.models.transformer_layers import CausalLayer, LayerParts, enter, leave
from transformer_jax.precision import rounding_barrier
from transformer_jax.sequence_types import DecodeCache, Tokens


class Prompt(NamedTuple):
    """The cache slots [B, P] of prompts, which end together: shorter ones begin later."""

    is_filled: Bool[Array, "B P"]


class DecoderOnly(nn.Module):
    """Causal layers between an embedding and logits, which may be the same module."""

    embedding: Embedding
    projection: OutputLayer
    positions: nn.Module
    parts: LayerParts
    num_layers: int
    embedding_dropout: Rate
    stack: Unrolled

    def setup(self) -> None:
        site = Site("decoder", "self", self.num_layers, is_causal=True)
        self.decoder_layers = [CausalLayer(self.parts, layer_site) for layer_site in layer_sites(self.stack, site)]
        self.decoder_norm = self.parts.final_norm(site)
        self.sum_dropout = Dropout(self.embedding_dropout)

    def __call__(self, tokens: Tokens, *, train: bool) -> Logits:
        """Return logits [B, T, V] of every token, from those before it in its segment."""
        return self.projection.logits(self.hidden_states(tokens, train=train))

    def factors(self, tokens: Tokens, *, train: bool) -> LogitFactors:
        return self.projection.factors(self.hidden_states(tokens, train=train))

    def hidden_states(self, tokens: Tokens, *, train: bool) -> Hidden:
        """Run the layers over ``tokens`` [B, T] shifted right by one."""
        mask = SentenceMask.between(tokens, tokens, is_causal=True, score_mod=score_mod_of(self.positions))
        length = tokens.ids.shape[1]
        inputs = shift_right(tokens)
        hidden = self._embed(inputs, tokens.positions, train=train, length=length)
        stream = self.stack(self.decoder_layers, enter(self.decoder_layers, hidden, inputs), mask, train=train)
        return self.decoder_norm(leave(self.decoder_layers, stream))

    def init_cache(self, inputs: TokenIds, *, beam_width: int, max_length: int) -> DecodeCache:
        """Return the cache after ``inputs`` [B, P], for ``max_length`` more tokens a beam.

        ``inputs`` begin with BOS and end together: shorter rows have PAD on their left. P may be 0.
        """
        rows, width = inputs.shape
        inputs = jnp.asarray(inputs)
        is_filled = inputs != PAD_ID
        num_slots = width + max_length * beam_width
        caches = [layer.self_attention.empty_cache(rows, num_slots, beam_width) for layer in self.decoder_layers]
        if width:
            prompt = Tokens(inputs, is_filled.astype(jnp.int32), prompt_positions(is_filled))
            hidden = self._embed(inputs, prompt.positions, train=False, length=width + max_length)
            mask = SentenceMask.between(prompt, prompt, is_causal=True, score_mod=score_mod_of(self.positions))
            stream = enter(self.decoder_layers, hidden, inputs)
            for index, layer in enumerate(self.decoder_layers):
                stream, caches[index] = layer.prefill(stream, mask, caches[index])
        visible = jnp.zeros((rows, beam_width, num_slots), bool).at[:, :, :width].set(is_filled[:, None])
        return with_layer_caches(visible, jnp.zeros((), jnp.int32), Prompt(is_filled), caches)

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Return logits of the next token after one more token a beam."""
        beams, prompt = cache.per_beam, cache.per_sentence
        beam_width, width = token_ids.shape[1], prompt.is_filled.shape[1]
        num_new = beams.visible.shape[2] - width
        write_index = width + beams.length * beam_width
        first = jnp.sum(prompt.is_filled, axis=1)[:, None]
        positions = jnp.broadcast_to(first + beams.length, token_ids.shape)
        hidden = self._embed(token_ids, positions, train=False, length=width + num_new // beam_width)
        visible = with_written_slots(beams.visible, write_index)
        new_positions = first + jnp.arange(num_new)[None, :] // beam_width
        slot_positions = jnp.concatenate([prompt_positions(prompt.is_filled), new_positions], axis=1)
        mask = StepMask(write_index, visible, positions, slot_positions, score_mod_of(self.positions))
        stream, caches = enter(self.decoder_layers, hidden, token_ids), []
        for layer, layer_cache in zip(self.decoder_layers, layer_caches(cache), strict=True):
            stream, layer_cache = layer.step(stream, layer_cache, mask)
            caches.append(layer_cache)
        logits = self.projection.logits(self.decoder_norm(leave(self.decoder_layers, stream)))
        return logits, with_layer_caches(visible, beams.length + 1, prompt, caches)

    def _embed(self, token_ids: TokenIds, positions: TokenIds, *, train: bool, length: int) -> Hidden:
        summed = self.parts.constrain(self.embedding.embed(token_ids) + self.positions(positions, length=length))
        return rounding_barrier(self.sum_dropout(summed, train=train).astype(self.parts.residual_dtype))


def prompt_positions(is_filled: Bool[Array, "B P"]) -> Int[Array, "B P"]:
    """Return the positions of prompts, from 0 at the first token of a row, and 0 on padding."""
    return jnp.maximum(jnp.cumsum(is_filled.astype(jnp.int32), axis=1) - 1, 0)
