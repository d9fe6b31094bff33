"""The recurrent encoder-decoder, with the methods of every sequence model."""

from dataclasses import dataclass
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Hidden, Int, Logits, PyTree
from transformer_jax.layers.batch_axes import row_keys
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.embedding import Embedding
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.models.interface import LogitFactors, shift_right
from transformer_jax.models.over_time import SAMPLING, over_time
from transformer_jax.models.rnn_decoder import Decoder, DecoderState, Places
from transformer_jax.models.rnn_encoder import RnnEncoder, mirrored
from transformer_jax.precision import FLOAT32, Precision, einsum
from transformer_jax.sequence_types import DecodeCache, Tokens


class RnnMemory(NamedTuple):
    """The encoded source: annotations [B, S, E], True on tokens [B, S], and the encoder's last state of every layer."""

    hidden: Hidden
    mask: Array
    states: tuple[PyTree, ...]


class RnnPerBeam(NamedTuple):
    """State of each beam, leaves [B, W, ...], and the number of tokens read."""

    state: DecoderState
    length: Int[Array, ""]


class Bridge(nn.Module):
    """tanh(W h) of the encoder's top state for every leaf of every decoder layer (Bahdanau et al. 2015, appendix A.2.2).

    Departs from it: h is the last state of both directions, there of the backward one alone; and the memory of an LSTM, which
    it does not have, is made in the same way.
    """

    memory_size: int
    hidden_size: int
    precision: Precision = FLOAT32

    @nn.compact
    def __call__(self, encoded: tuple[PyTree, ...], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        """States of the decoder, of the structure of ``like``, from those of the encoder."""
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
        """``encoded``."""
        return encoded


class ZeroStates(nn.Module):
    """Zeros: the decoder reads the encoder by attention alone."""

    def __call__(self, encoded: tuple[PyTree, ...], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        """``like``, which is zeros."""
        return like


# Decoder inputs in training: the reference, or sometimes the model's own words.


@dataclass(frozen=True)
class TeacherForcing:
    """Every token is read after those of the reference (Williams and Zipser 1989), so all of them are read at once."""

    def __call__(
        self, model: "RnnSeq2Seq", inputs: Int[Array, "B T"], state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[Places, PyTree]:
        """Decoder inputs, and the output of ``advance`` at every position."""
        positions = jnp.broadcast_to(jnp.arange(inputs.shape[1]), inputs.shape)
        places = Places(model.embed_target(inputs, train=train), positions)
        return places, model.decoder.advance_all(model.decoder.read(places), positions, state, prepared, train=train)


@dataclass(frozen=True)
class ScheduledSampling:
    """With ``probability`` a token is read that the model itself drew, not that of the reference (Bengio et al. 2015).

    The probability stays the same throughout, as in Chan et al. 2016, section 3.3; the schedules of Bengio et al., which raise
    it, are not here. Costs the product over the vocabulary in every step. Outside training it is teacher forcing.
    """

    probability: float | Float[Array, ""]

    def __call__(
        self, model: "RnnSeq2Seq", inputs: Int[Array, "B T"], state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[Places, PyTree]:
        """Decoder inputs, and the output of ``advance`` at every position."""
        if not train:
            return TeacherForcing()(model, inputs, state, prepared, train=train)
        positions = jnp.broadcast_to(jnp.arange(inputs.shape[1]), inputs.shape)

        def advance(model: "RnnSeq2Seq", carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
            state, own = carry
            ids, positions = at
            keys = row_keys(model.make_rng(SAMPLING), len(ids))
            draws = jax.vmap(lambda key: jax.random.bernoulli(key, self.probability, ids.shape[1:]))(keys)
            places = Places(model.embed_target(jnp.where(draws & (positions > 0), own, ids), train=train), positions)
            state, left = model.decoder.advance(model.decoder.read(places), positions, state, prepared, train=train)
            written = model.decoder.write(places, left, prepared, train=train)
            logits = jax.lax.stop_gradient(model.projection.logits(written.output))
            keys = row_keys(model.make_rng(SAMPLING), len(ids))
            return (state, jax.vmap(jax.random.categorical)(keys, logits)), (places.embedded, left)

        _, (embedded, left) = over_time(advance, model, (state, inputs[:, :1]), (inputs, positions))
        return Places(embedded, positions), left


Feeding = TeacherForcing | ScheduledSampling


class RnnSeq2Seq(nn.Module):
    """Encoder, decoder, the step between them, and what the decoder reads while it learns. One sentence a row.

    ``source_embedding``, ``target_embedding`` and ``projection`` may be one and the same module: then they share a matrix.
    """

    source_embedding: Embedding
    target_embedding: Embedding
    projection: Embedding
    encoder: RnnEncoder
    decoder: Decoder
    bridge: nn.Module
    feeding: Feeding
    reverses_source: bool
    embedding_dropout: Rate

    def setup(self) -> None:
        self.sum_dropout = Dropout(self.embedding_dropout)

    def __call__(self, source: Tokens, target: Tokens, *, train: bool) -> Logits:
        """Teacher-forced logits [B, T, V]: ``decode`` after ``encode``."""
        return self.decode(target, self.encode(source, train=train), train=train)

    def encode(self, source: Tokens, *, train: bool) -> RnnMemory:
        """Runs the encoder over source tokens [B, S]."""
        # Back to front the encoder ends at the first words (Sutskever et al. 2014, section 3.3); attention sees the true order.
        turn = mirrored if self.reverses_source else lambda array, _: array
        embedded = self.source_embedding.embed(turn(jnp.asarray(source.ids), source))
        hidden, states = self.encoder(self.sum_dropout(embedded, train=train), source, train=train)
        hidden = turn(hidden, source)
        return RnnMemory(hidden, jnp.asarray(source.segments) != 0, states)

    def decode(self, target: Tokens, memory: RnnMemory, *, train: bool) -> Logits:
        """Logits of every token of the target."""
        return self.projection.logits(self.decode_hidden(target, memory, train=train))

    def factors(self, source: Tokens, target: Tokens, *, train: bool) -> LogitFactors:
        """The two factors of the teacher-forced logits."""
        hidden = self.decode_hidden(target, self.encode(source, train=train), train=train)
        return LogitFactors(hidden, self.projection.table)

    def decode_hidden(self, target: Tokens, memory: RnnMemory, *, train: bool) -> Hidden:
        """Runs the decoder over target tokens [B, T] shifted right by one, as a scan over time."""
        prepared, state = self._begin(memory, beams=1)
        places, left = self.feeding(self, shift_right(target), state, prepared, train=train)
        written = self.decoder.write(places, left, prepared, train=train)
        if written.weights is not None:
            # One head, where those of the attention module are looked for.
            self.decoder.cross_attention.sow("intermediates", "attention_weights", written.weights[:, None])
        return written.output

    def embed_target(self, ids: Int[Array, "B T"], *, train: bool) -> Hidden:
        """Embeddings of target tokens as the decoder reads them."""
        return self.sum_dropout(self.target_embedding.embed(ids), train=train)

    def init_cache(self, memory: RnnMemory, *, beam_width: int, max_length: int) -> DecodeCache:
        """The decoder's first state in every beam, and what attention made of the source."""
        prepared, state = self._begin(memory, beams=beam_width)
        return DecodeCache(RnnPerBeam(state, jnp.zeros((), jnp.int32)), prepared)

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Logits after one more token in each beam."""
        beams: RnnPerBeam = cache.per_beam
        positions = jnp.full(token_ids.shape, beams.length)
        places = Places(self.target_embedding.embed(token_ids), positions)
        prepared = cache.per_sentence
        state, left = self.decoder.advance(self.decoder.read(places), positions, beams.state, prepared, train=False)
        written = self.decoder.write(places, left, prepared, train=False)
        hidden = written.output
        logits = self.projection.logits(hidden)
        return logits, DecodeCache(RnnPerBeam(state, beams.length + 1), prepared)

    def _begin(self, memory: RnnMemory, *, beams: int) -> tuple[PyTree, DecoderState]:
        """The memory prepared for attention, and the state before the first token in each beam."""
        rows = memory.mask.shape[0]
        zeros = self.decoder.stack.zeros(rows)
        states = self.bridge(memory.states, zeros)
        in_beams = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (rows, beams, leaf.shape[1])), states)
        prepared = self.decoder.prepare(memory.hidden, memory.mask)
        return prepared, self.decoder.start(in_beams, prepared)
