"""The recurrent encoder-decoder, with the methods of every sequence model."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Hidden, Int, PyTree
from transformer_jax.layers.dropout import Dropout, Rate, dropout_keys
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.models.interface import EncoderDecoder, shift_right
from transformer_jax.models.rnn_decoder import DecoderInputs, DecoderState, MakeLayer, PlainDecoder, over_time
from transformer_jax.precision import Precision, einsum
from transformer_jax.sequence_types import DecodeCache, Tokens


class RnnMemory(NamedTuple):
    """Annotations [B, S, E], a mask [B, S] of tokens, and the last state of every encoder layer."""

    hidden: Hidden
    mask: Array
    states: tuple[PyTree, ...]


class RnnPerBeam(NamedTuple):
    state: DecoderState
    length: Int[Array, ""]


class RnnEncoder(nn.Module):
    """Layers in one direction (Sutskever et al. 2014) or both (Bahdanau et al. 2015)."""

    make_layer: MakeLayer
    num_layers: int
    input_size: int
    hidden_size: int
    is_bidirectional: bool
    dropout: Rate

    def setup(self) -> None:
        memory_size = self.hidden_size * (2 if self.is_bidirectional else 1)
        sizes = [self.input_size] + [memory_size] * (self.num_layers - 1)
        self.forward_layers = [self.make_layer(size) for size in sizes]
        self.backward_layers = [self.make_layer(size) for size in sizes] if self.is_bidirectional else []
        self.layer_dropout = Dropout(self.dropout)

    def __call__(
        self, inputs: Float[Array, "B S D"], source: Tokens, *, train: bool
    ) -> tuple[Float[Array, "B S E"], tuple[PyTree, ...]]:
        """Return annotations and the last state [B, E] of every layer, of both directions."""
        is_token = jnp.asarray(source.segments != 0)
        hidden, states = inputs, []
        for index, layer in enumerate(self.forward_layers):
            if index:
                hidden = self.layer_dropout(hidden, train=train)
            outputs, state = layer(hidden, is_token)
            if self.is_bidirectional:
                other_outputs, other_state = self.backward_layers[index](hidden, is_token, backward=True)
                outputs = jnp.concatenate([outputs, other_outputs], axis=-1)
                state = jax.tree.map(lambda *both: jnp.concatenate(both, axis=-1), state, other_state)
            hidden = outputs
            states.append(state)
        return hidden, tuple(states)


class Bridge(nn.Module):
    """tanh(W h) of the encoder's top state, for every leaf of every decoder layer.

    Bahdanau et al. 2015, appendix A.2.2. Unlike there, h is the last state of both directions, not
    of the backward one alone. The memory of an LSTM is computed in the same way.
    """

    memory_size: int
    hidden_size: int
    precision: Precision

    @nn.compact
    def __call__(self, encoded: tuple[PyTree, ...], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        """Return states of the decoder, structured as ``like``, from the states of the encoder."""
        top = jax.tree.leaves(encoded[-1])[0]
        leaves, structure = jax.tree.flatten(like)
        shape = self.memory_size, len(leaves), self.hidden_size
        kernel = self.param("kernel", xavier_uniform(0, 2), shape)
        bias = self.param("bias", nn.initializers.zeros, shape[1:])
        product = einsum("BE,EC->BC", top, kernel.reshape(self.memory_size, -1), self.precision) + bias.reshape(1, -1)
        states = jnp.tanh(product).reshape(-1, *bias.shape)
        return jax.tree.unflatten(structure, [states[:, leaf] for leaf in range(len(leaves))])


class LastStates(nn.Module):
    """The encoder's last states, layer by layer (Sutskever et al. 2014, section 2)."""

    def __call__(self, encoded: tuple[PyTree, ...], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        return encoded


class ZeroStates(nn.Module):
    """Zeros: the decoder reads the encoder by attention alone."""

    def __call__(self, encoded: tuple[PyTree, ...], like: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        return like


class RnnSeq2Seq(EncoderDecoder):
    """Encoder, bridge and decoder; one sentence a row.

    ``bridge`` makes the first states of the decoder from the last states of the encoder and from
    zeros of their structure. ``scheduled_sampling``: the probability, in training, that the decoder
    reads a token sampled from the model (Bengio et al. 2015), constant as in Chan et al. 2016,
    section 3.3. None: the decoder reads the reference, all tokens at once.
    """

    encoder: RnnEncoder
    decoder: PlainDecoder
    bridge: nn.Module
    reverses_source: bool
    embedding_dropout: Rate
    scheduled_sampling: Rate

    def setup(self) -> None:
        self.sum_dropout = Dropout(self.embedding_dropout)

    def encode(self, source: Tokens, *, train: bool) -> RnnMemory:
        # Reversed, the encoder ends at the first words (Sutskever et al. 2014, section 3.3).
        # Attention sees the true order.
        reverse = mirrored if self.reverses_source else lambda array, _: array
        embedded = reverse(self.source_embedding.embed(jnp.asarray(source.ids)), source)
        hidden, states = self.encoder(self.sum_dropout(embedded, train=train), source, train=train)
        hidden = reverse(hidden, source)
        return RnnMemory(hidden, jnp.asarray(source.segments) != 0, states)

    def decode_hidden(self, target: Tokens, memory: RnnMemory, *, train: bool) -> Hidden:
        prepared, state = self._begin(memory, beams=1)
        ids = shift_right(target)
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        if train and self.scheduled_sampling is not None:
            tokens, advanced = self._advance_on_samples(ids, positions, state, prepared)
        else:
            tokens = DecoderInputs(self._embed(ids, train=train), positions)
            advanced = self.decoder.advance_all(self.decoder.read(tokens), positions, state, prepared, train=train)
        written = self.decoder.write(tokens, advanced, prepared, train=train)
        if written.weights is not None:
            # As one head.
            self.decoder.cross_attention.sow("intermediates", "attention_weights", written.weights[:, None])
        return written.output

    def _advance_on_samples(
        self, ids: Int[Array, "B T"], positions: Int[Array, "B T"], state: DecoderState, prepared: PyTree
    ) -> tuple[DecoderInputs, PyTree]:
        """Return the decoder inputs, some of them sampled, and the results of ``advance``."""

        def advance(model: RnnSeq2Seq, carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
            state, sampled = carry
            ids, positions = at
            probability, keys = model.scheduled_sampling, dropout_keys(model.make_rng("dropout"), len(ids))
            assert probability is not None
            is_sampled = jax.vmap(lambda key: jax.random.bernoulli(key, probability, ids.shape[1:]))(keys)
            embedded = model._embed(jnp.where(is_sampled & (positions > 0), sampled, ids), train=True)
            tokens = DecoderInputs(embedded, positions)
            state, advanced = model.decoder.advance(model.decoder.read(tokens), positions, state, prepared, train=True)
            written = model.decoder.write(tokens, advanced, prepared, train=True)
            logits = jax.lax.stop_gradient(model.projection.logits(written.output))
            keys = dropout_keys(model.make_rng("dropout"), len(ids))
            return (state, jax.vmap(jax.random.categorical)(keys, logits)), (embedded, advanced)

        _, (embedded, advanced) = over_time(advance, self, (state, ids[:, :1]), (ids, positions))
        return DecoderInputs(embedded, positions), advanced

    def _embed(self, ids: Int[Array, "B T"], *, train: bool) -> Hidden:
        return self.sum_dropout(self.target_embedding.embed(ids), train=train)

    def init_cache(self, memory: RnnMemory, *, beam_width: int, max_length: int) -> DecodeCache:
        """Return the decoder's first state in every beam, and the source prepared for attention."""
        prepared, state = self._begin(memory, beams=beam_width)
        return DecodeCache(RnnPerBeam(state, jnp.zeros((), jnp.int32)), prepared)

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        beams: RnnPerBeam = cache.per_beam
        positions = jnp.full(token_ids.shape, beams.length)
        tokens = DecoderInputs(self.target_embedding.embed(token_ids), positions)
        prepared = cache.per_sentence
        state, advanced = self.decoder.advance(self.decoder.read(tokens), positions, beams.state, prepared, train=False)
        written = self.decoder.write(tokens, advanced, prepared, train=False)
        return self.projection.logits(written.output), DecodeCache(RnnPerBeam(state, beams.length + 1), prepared)

    def _begin(self, memory: RnnMemory, *, beams: int) -> tuple[PyTree, DecoderState]:
        """Return the prepared memory, and the state before the first token of beams."""
        rows = memory.mask.shape[0]
        states = self.bridge(memory.states, self.decoder.stack.zeros(rows))
        in_beams = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (rows, beams, leaf.shape[1])), states)
        prepared = self.decoder.prepare(memory.hidden, memory.mask)
        return prepared, self.decoder.start(in_beams, prepared)


def mirrored(array: Array, source: Tokens) -> Array:
    """Reverse every sentence [B, S, ...] except for its EOS and padding.

    ``[[5, 6, 7, 2, 0]]`` becomes ``[[7, 6, 5, 2, 0]]``. The function is its own inverse. One
    sentence a row.
    """
    position = jnp.arange(array.shape[1])[None, :]
    opposite = jnp.sum(jnp.asarray(source.segments) != 0, axis=1)[:, None] - 2 - position
    order = jnp.where(opposite >= 0, opposite, position)
    return jnp.take_along_axis(array, order.reshape(*order.shape, *(1 for _ in array.shape[2:])), axis=1)
