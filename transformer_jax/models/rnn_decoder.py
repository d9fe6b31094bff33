"""Recurrent decoders: how cell, attention and output are wired.

Each has three parts. ``read``: what the tokens contribute, for all of them at once. ``advance``: what has to wait for the token
before, one token at a time. ``write``: the outputs, again for all at once, from what ``advance`` left behind. Training reads
and writes whole sentences around ``advance_all``, which does the same as ``advance`` token by token; decoding has one token in
every beam.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Int, PyTree
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.layers.rnn_attention import Prepared, RnnAttention
from transformer_jax.models.over_time import over_time
from transformer_jax.models.rnn_stack import Stack
from transformer_jax.precision import FLOAT32, Precision, einsum


class DecoderState(NamedTuple):
    """State carried from token to token, leaves [B, Q, ...]: of each layer, the fed input, and that of the attention."""

    layers: tuple[PyTree, ...]
    feed: PyTree
    attention: PyTree


class Places(NamedTuple):
    """The tokens that are read: ``embedded`` [B, Q, D], and where in the target they stand, ``positions`` [B, Q]."""

    embedded: Float[Array, "B Q D"]
    positions: Int[Array, "B Q"]


class Written(NamedTuple):
    """``output`` [B, Q, O] for the output matrix; ``weights`` [B, Q, M], None without attention."""

    output: Float[Array, "B Q O"]
    weights: Array | None


class PlainDecoder(nn.Module):
    """No attention: everything about the source is in the first state (Sutskever et al. 2014, section 2)."""

    make_stack: Callable[[int], Stack]
    embedding_size: int
    dropout: Rate

    def setup(self) -> None:
        self.stack = self.make_stack(self.embedding_size)
        self.output_dropout = Dropout(self.dropout)

    def prepare(self, memory: Array, mask: Array) -> None:
        """Nothing."""

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        """The states alone."""
        return DecoderState(states, (), ())

    def read(self, places: Places) -> Array:
        """Contribution of the tokens to the gates."""
        return self.stack.read(places.embedded)

    def advance(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderState, Array]:
        """The new state, and the top layer's hidden state."""
        top, layers = self.stack(read, state.layers, train=train)
        return DecoderState(layers, (), ()), top

    def advance_all(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> Array:
        """The top layer's hidden states."""
        return self.stack.over_time(read, state.layers, train=train)

    def write(self, places: Places, left: Array, prepared: PyTree, *, train: bool) -> Written:
        """The top layer's hidden state is the output."""
        return Written(self.output_dropout(left, train=train), None)


class LuongDecoder(nn.Module):
    """Attends with the new state: output tanh(W [c; h]) (Luong et al. 2015, section 3, equation 5).

    Here attention remembers nothing and nothing is fed, so all places of a target attend at once. Parameter:
    ``combine_kernel`` [E + N, N].
    """

    make_stack: Callable[[int], Stack]
    make_attention: Callable[[], RnnAttention]
    embedding_size: int
    hidden_size: int
    memory_size: int
    dropout: Rate
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.stack = self.make_stack(self.embedding_size)
        self._set_up_output()

    def _set_up_output(self) -> None:
        self.cross_attention = self.make_attention()
        shape = self.memory_size + self.hidden_size, self.hidden_size
        self.combine_kernel = self.param("combine_kernel", xavier_uniform(0, 1), shape)
        self.output_dropout = Dropout(self.dropout)

    def prepare(self, memory: Array, mask: Array) -> Prepared:
        """The memory prepared for attention."""
        return self.cross_attention.prepare(memory, mask)

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        """The states alone."""
        return DecoderState(states, (), ())

    def read(self, places: Places) -> Array:
        """Contribution of the tokens to the gates."""
        return self.stack.read(places.embedded)

    def advance(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderState, PyTree]:
        """The new state, and the top layer's hidden state."""
        top, layers = self.stack(read, state.layers, train=train)
        return DecoderState(layers, (), ()), top

    def advance_all(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> Array:
        """The top layer's hidden states."""
        return self.stack.over_time(read, state.layers, train=train)

    def write(self, places: Places, left: PyTree, prepared: PyTree, *, train: bool) -> Written:
        """The attentional vector is the output."""
        state = self.cross_attention.start(prepared, left.shape[1])
        found = self.cross_attention(left, places.positions, prepared, state)
        return Written(self._combined(found.context, left, train=train), found.weights)

    def _combined(self, context: Array, top: Array, *, train: bool) -> Array:
        both = jnp.concatenate([context, top], axis=-1)
        output = jnp.tanh(einsum("BQC,CN->BQN", both, self.combine_kernel, self.precision))
        return self.output_dropout(output, train=train)


class InputFeedingDecoder(LuongDecoder):
    """The attentional vector is read again with the next token (Luong et al. 2015, section 3.3)."""

    def setup(self) -> None:
        self.stack = self.make_stack(self.embedding_size + self.hidden_size)
        self._set_up_output()

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        """Zeros are fed to the first token."""
        top = self.stack.top(states)
        feed = jnp.zeros((*top.shape[:-1], self.hidden_size))
        return DecoderState(states, feed, self.cross_attention.start(prepared, top.shape[1]))

    def advance(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderState, PyTree]:
        """The new state, and output and weights, which depend on the token before."""
        top, layers = self.stack(read + self.stack.read_rest(state.feed), state.layers, train=train)
        found = self.cross_attention(top, positions, prepared, state.attention)
        output = self._combined(found.context, top, train=train)
        return DecoderState(layers, output, found.state), (output, found.weights)

    def advance_all(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> PyTree:
        """A scan of ``advance``, whose attention needs what the token before left."""
        return _token_by_token(self, read, positions, state, prepared, train=train)

    def write(self, places: Places, left: PyTree, prepared: PyTree, *, train: bool) -> Written:
        """Output of ``advance``."""
        return Written(*left)


class BahdanauDecoder(nn.Module):
    """Attends with the previous state; cell and output read the context (Bahdanau et al. 2015, appendix A.1.2 and A.2.2).

    The output is the maxout, over pairs, of a layer of previous state, previous token and context. Parameter:
    ``readout_kernel`` [N + D + E, 2 O].
    """

    make_stack: Callable[[int], Stack]
    make_attention: Callable[[], RnnAttention]
    embedding_size: int
    hidden_size: int
    memory_size: int
    output_size: int
    dropout: Rate
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.stack = self.make_stack(self.embedding_size + self.memory_size)
        self.cross_attention = self.make_attention()
        shape = self.hidden_size + self.embedding_size + self.memory_size, 2 * self.output_size
        self.readout_kernel = self.param("readout_kernel", xavier_uniform(0, 1), shape)
        self.output_dropout = Dropout(self.dropout)

    def prepare(self, memory: Array, mask: Array) -> Prepared:
        """The memory prepared for attention."""
        return self.cross_attention.prepare(memory, mask)

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        """Nothing is fed."""
        return DecoderState(states, (), self.cross_attention.start(prepared, self.stack.top(states).shape[1]))

    def read(self, places: Places) -> Array:
        """Contribution of the tokens to the gates."""
        return self.stack.read(places.embedded)

    def advance(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderState, PyTree]:
        """The new state; the previous one, the context and the weights."""
        previous = self.stack.top(state.layers)
        found = self.cross_attention(previous, positions, prepared, state.attention)
        _, layers = self.stack(read + self.stack.read_rest(found.context), state.layers, train=train)
        return DecoderState(layers, (), found.state), (previous, found.context, found.weights)

    def advance_all(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> PyTree:
        """A scan of ``advance``, whose attention needs what the token before left."""
        return _token_by_token(self, read, positions, state, prepared, train=train)

    def write(self, places: Places, left: PyTree, prepared: PyTree, *, train: bool) -> Written:
        """The maxout layer is the output."""
        previous, context, weights = left
        inputs = jnp.concatenate([previous, places.embedded, context], axis=-1)
        read = einsum("BQC,CN->BQN", inputs, self.readout_kernel, self.precision)
        output = jnp.max(read.reshape(*read.shape[:-1], self.output_size, 2), axis=-1)
        return Written(self.output_dropout(output, train=train), weights)


def _token_by_token(
    decoder: InputFeedingDecoder | BahdanauDecoder,
    read: Array,
    positions: Array,
    state: DecoderState,
    prepared: PyTree,
    *,
    train: bool,
) -> PyTree:
    def advance(decoder: nn.Module, state: DecoderState, at: PyTree) -> tuple[DecoderState, PyTree]:
        return decoder.advance(*at, state, prepared, train=train)

    return over_time(advance, decoder, state, (read, positions))[1]


Decoder = PlainDecoder | LuongDecoder | BahdanauDecoder
"""A wiring: ``prepare`` once a sentence, ``start`` from first states; ``read``, ``advance`` or ``advance_all``, ``write``."""
