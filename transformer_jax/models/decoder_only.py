"""The decoder-only Transformer: a language model (Liu et al. 2018, section 4.2.3; Radford et al. 2019)."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import PAD_ID, Array, Bool, Float, Hidden, Int, Logits, TokenIds
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.embedding import BiasedProjection, Embedding
from transformer_jax.layers.masks import SentenceMask, with_written_slots
from transformer_jax.models.interface import LogitFactors, shift_right
from transformer_jax.models.layer_stack import LayerStack, Unrolled
from transformer_jax.models.transformer import PerBeam
from transformer_jax.models.transformer_layers import CausalLayer, LayerParts
from transformer_jax.sequence_types import DecodeCache, Tokens


class Prompt(NamedTuple):
    """The cache slots [B, P] that a prompt fills: prompts end together, so shorter ones begin later."""

    is_filled: Bool[Array, "B P"]


class DecoderOnly(nn.Module):
    """Causal layers between an embedding and logits; ``embedding`` and ``projection`` may be the same module."""

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
        """The cache after ``inputs`` [B, P], filled in one pass, with cache slots for ``max_length`` more tokens in each beam.

        ``inputs`` begin with BOS and end together: shorter rows have PAD on their left. P may be 0.
        """
        rows, width = inputs.shape
        inputs = jnp.asarray(inputs)
        is_filled = inputs != PAD_ID
        num_slots = width + max_length * beam_width
        caches = [layer.self_attention.init_cache(rows, num_slots) for layer in self.decoder_layers]
        if width:
            segments = is_filled.astype(jnp.int32)
            positions = jnp.maximum(jnp.cumsum(segments, axis=1) - 1, 0)
            hidden = self._embed(inputs, positions, train=False, length=width + max_length)
            mask = SentenceMask(segments, segments, is_causal=True)
            for index, layer in enumerate(self.decoder_layers):
                hidden, prompt = layer.prefill(hidden, mask)
                caches[index] = caches[index].write(prompt, 0)
        visible = jnp.zeros((rows, beam_width, num_slots), bool).at[:, :, :width].set(is_filled[:, None])
        return DecodeCache(PerBeam(visible, jnp.zeros((), jnp.int32)), Prompt(is_filled), tuple(caches))

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Logits of the next token after one more token in each beam."""
        beams, prompt = cache.per_beam, cache.per_sentence
        beam_width, width = token_ids.shape[1], prompt.is_filled.shape[1]
        max_length = width + (beams.visible.shape[2] - width) // beam_width
        write_index = width + beams.length * beam_width
        positions = jnp.sum(prompt.is_filled, axis=1)[:, None] + beams.length
        hidden = self._embed(token_ids, jnp.broadcast_to(positions, token_ids.shape), train=False, length=max_length)
        visible = with_written_slots(beams.visible, write_index)
        caches = []
        for layer, layer_cache in zip(self.decoder_layers, cache.kv_cache, strict=True):
            hidden, layer_cache = layer.step(hidden, layer_cache, write_index, visible)
            caches.append(layer_cache)
        logits = self.projection.logits(self.decoder_norm(hidden))
        return logits, DecodeCache(PerBeam(visible, beams.length + 1), prompt, tuple(caches))

    def _embed(self, token_ids: TokenIds, positions: TokenIds, *, train: bool, length: int) -> Hidden:
        """Dropout(embedding + positional encoding), section 5.4 of Vaswani et al. 2017; all positions are below ``length``."""
        summed = self.parts.constrain(self.embedding.embed(token_ids) + self.positions(positions, length=length))
        return self.sum_dropout(summed, train=train).astype(self.parts.residual_dtype)
