"""The recurrent encoder-decoder, with the methods of every sequence model."""

from dataclasses import dataclass
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Hidden, Int, Logits, PyTree
from transformer_jax.layers.dropout import Dropout, Rate, dropout_keys
from transformer_jax.layers.embedding import Embedding, LogitFactors
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.models.interface import shift_right
from transformer_jax.models.rnn_decoder import DecoderInputs, DecoderState, PlainDecoder
from transformer_jax.models.rnn_layers import RnnEncoder, mirrored, over_time
from transformer_jax.precision import FLOAT32, Precision, einsum
from transformer_jax.sequence_types import DecodeCache, Tokens


class RnnMemory(NamedTuple):
    """The encoded source: annotations [B, S, E], a mask [B, S], True on tokens, and the last state of every encoder layer."""

    hidden: Hidden
    mask: Array
    states: tuple[PyTree, ...]


class RnnPerBeam(NamedTuple):
    """State of each beam, leaves [B, W, ...], and the number of tokens read."""

    state: DecoderState
    length: Int[Array, ""]


class Bridge(nn.Module):
    """tanh(W h) of the encoder's top state for every leaf of every decoder layer (Bahdanau et al. 2015, appendix A.2.2).

    Unlike there, h is the last state of both directions, not of the backward one alone; the memory of an LSTM is computed
    in the same way.
    """

    memory_size: int
    hidden_size: int
    precision: Precision = FLOAT32

    @nn.compact
    def __call__(self, encoded: tuple[PyTree, ...], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        """States of the decoder, of the structure of ``like``, from the states of the encoder."""
        top = jax.tree.leaves(encoded[-1])[0]
        leaves, structure = jax.tree.flatten(like)
        shape = self.memory_size, len(leaves), self.hidden_size
        kernel = self.param("kernel", xavier_uniform(0, 2), shape)
        bias = self.param("bias", nn.initializers.zeros, shape[1:])
        made = einsum("BE,EC->BC", top, kernel.reshape(self.memory_size, -1), self.precision) + bias.reshape(1, -1)
        states = jnp.tanh(made).reshape(-1, *bias.shape)
        return jax.tree.unflatten(structure, [states[:, leaf] for leaf in range(len(leaves))])


class LastStates(nn.Module):
    """The encoder's last states, layer by layer (Sutskever et al. 2014, section 2)."""

    def __call__(self, encoded: tuple[PyTree, ...], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        return encoded


class ZeroStates(nn.Module):
    """Zeros: the decoder reads the encoder by attention alone."""

    def __call__(self, encoded: tuple[PyTree, ...], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        return like


@dataclass(frozen=True)
class TeacherForcing:
    """The decoder reads the reference (Williams and Zipser 1989), so all tokens are read at once."""

    def __call__(
        self, model: "RnnSeq2Seq", ids: Int[Array, "B T"], state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderInputs, PyTree]:
        """Decoder inputs, and the results of the decoder's ``advance`` at every position."""
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        tokens = DecoderInputs(model.embed_target(ids, train=train), positions)
        return tokens, model.decoder.advance_all(model.decoder.read(tokens), positions, state, prepared, train=train)


@dataclass(frozen=True)
class ScheduledSampling:
    """In training, with ``probability``, the decoder reads a token sampled from the model (Bengio et al. 2015).

    The probability is constant, as in Chan et al. 2016, section 3.3, without the schedules of Bengio et al. Costs the product
    over the vocabulary in every step.
    """

    probability: float | Float[Array, ""]

    def __call__(
        self, model: "RnnSeq2Seq", ids: Int[Array, "B T"], state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderInputs, PyTree]:
        """Decoder inputs, and the results of the decoder's ``advance`` at every position."""
        if not train:
            return TeacherForcing()(model, ids, state, prepared, train=train)
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)

        def advance(model: "RnnSeq2Seq", carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
            state, sampled = carry
            ids, positions = at
            # Every training pass has the Flax RNG ``dropout``.
            keys = dropout_keys(model.make_rng("dropout"), len(ids))
            is_sampled = jax.vmap(lambda key: jax.random.bernoulli(key, self.probability, ids.shape[1:]))(keys)
            embedded = model.embed_target(jnp.where(is_sampled & (positions > 0), sampled, ids), train=train)
            tokens = DecoderInputs(embedded, positions)
            state, advanced = model.decoder.advance(model.decoder.read(tokens), positions, state, prepared, train=train)
            written = model.decoder.write(tokens, advanced, prepared, train=train)
            logits = jax.lax.stop_gradient(model.projection.logits(written.output))
            keys = dropout_keys(model.make_rng("dropout"), len(ids))
            return (state, jax.vmap(jax.random.categorical)(keys, logits)), (embedded, advanced)

        _, (embedded, advanced) = over_time(advance, model, (state, ids[:, :1]), (ids, positions))
        return DecoderInputs(embedded, positions), advanced


class RnnSeq2Seq(nn.Module):
    """Encoder, bridge and decoder; ``feeding`` chooses the decoder's inputs in training. One sentence a row.

    ``source_embedding``, ``target_embedding`` and ``projection`` share a matrix where they are the same module.
    """

    source_embedding: Embedding
    target_embedding: Embedding
    projection: Embedding
    encoder: RnnEncoder
    decoder: PlainDecoder
    bridge: nn.Module
    feeding: TeacherForcing | ScheduledSampling
    reverses_source: bool
    embedding_dropout: Rate

    def setup(self) -> None:
        self.sum_dropout = Dropout(self.embedding_dropout)

    def __call__(self, source: Tokens, target: Tokens, *, train: bool) -> Logits:
        """Teacher-forced logits [B, T, V]: ``decode`` after ``encode``."""
        return self.decode(target, self.encode(source, train=train), train=train)

    def encode(self, source: Tokens, *, train: bool) -> RnnMemory:
        """Runs the encoder over source tokens [B, S]."""
        # Reversed, the encoder ends at the first words (Sutskever et al. 2014, section 3.3); attention sees the true order.
        reverse = mirrored if self.reverses_source else lambda array, _: array
        embedded = self.source_embedding.embed(reverse(jnp.asarray(source.ids), source))
        hidden, states = self.encoder(self.sum_dropout(embedded, train=train), source, train=train)
        hidden = reverse(hidden, source)
        return RnnMemory(hidden, jnp.asarray(source.segments) != 0, states)

    def decode(self, target: Tokens, memory: RnnMemory, *, train: bool) -> Logits:
        """Logits of every token of the target."""
        return self.projection.logits(self.decode_hidden(target, memory, train=train))

    def factors(self, source: Tokens, target: Tokens, *, train: bool) -> LogitFactors:
        """The two factors of the teacher-forced logits."""
        hidden = self.decode_hidden(target, self.encode(source, train=train), train=train)
        return self.projection.factors(hidden)

    def decode_hidden(self, target: Tokens, memory: RnnMemory, *, train: bool) -> Hidden:
        """Runs the decoder over target tokens [B, T] shifted right by one, as a scan over time."""
        prepared, state = self._begin(memory, beams=1)
        tokens, advanced = self.feeding(self, shift_right(target), state, prepared, train=train)
        written = self.decoder.write(tokens, advanced, prepared, train=train)
        if written.weights is not None:
            # As one head.
            self.decoder.cross_attention.sow("intermediates", "attention_weights", written.weights[:, None])
        return written.output

    def embed_target(self, ids: Int[Array, "B T"], *, train: bool) -> Hidden:
        """Embeddings of target tokens as the decoder reads them."""
        return self.sum_dropout(self.target_embedding.embed(ids), train=train)

    def init_cache(self, memory: RnnMemory, *, beam_width: int, max_length: int) -> DecodeCache:
        """The decoder's first state in every beam, and the source prepared for attention."""
        prepared, state = self._begin(memory, beams=beam_width)
        return DecodeCache(RnnPerBeam(state, jnp.zeros((), jnp.int32)), prepared)

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Logits after one more token in each beam."""
        beams: RnnPerBeam = cache.per_beam
        positions = jnp.full(token_ids.shape, beams.length)
        tokens = DecoderInputs(self.target_embedding.embed(token_ids), positions)
        prepared = cache.per_sentence
        state, advanced = self.decoder.advance(self.decoder.read(tokens), positions, beams.state, prepared, train=False)
        written = self.decoder.write(tokens, advanced, prepared, train=False)
        logits = self.projection.logits(written.output)
        return logits, DecodeCache(RnnPerBeam(state, beams.length + 1), prepared)

    def _begin(self, memory: RnnMemory, *, beams: int) -> tuple[PyTree, DecoderState]:
        """The memory prepared for attention, and the state before the first token in each beam."""
        rows = memory.mask.shape[0]
        zeros = self.decoder.stack.zeros(rows)
        states = self.bridge(memory.states, zeros)
        in_beams = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (rows, beams, leaf.shape[1])), states)
        prepared = self.decoder.prepare(memory.hidden, memory.mask)
        return prepared, self.decoder.start(in_beams, prepared)
