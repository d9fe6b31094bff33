"""Recurrent decoders: how cell, attention and output are wired. Each takes one token at a time, in every beam at once."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Int, PyTree
from transformer_jax.contraction import contract
from transformer_jax.layers.dropout import Dropout
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.layers.recurrent import RecurrentLayer
from transformer_jax.layers.rnn_attention import Prepared, RnnAttention
from transformer_jax.models.rnn_encoder import MakeLayer


class DecoderState(NamedTuple):
    """What is carried from token to token, leaves [B, W, ...]: a state a layer, what is fed, what attention remembers."""

    layers: tuple[PyTree, ...]
    feed: PyTree
    attention: PyTree


class Step(NamedTuple):
    """``output`` [B, W, O] for the output matrix; ``weights`` [B, W, M], None without attention; the new state."""

    output: Float[Array, "B W O"]
    weights: Array | None
    state: DecoderState


class Stack(nn.Module):
    """Recurrent layers one above the other, advanced by one token."""

    make_layer: MakeLayer
    num_layers: int
    input_size: int
    hidden_size: int
    dropout: float

    def setup(self) -> None:
        sizes = [self.input_size] + [self.hidden_size] * (self.num_layers - 1)
        self.layers: list[RecurrentLayer] = [self.make_layer(size) for size in sizes]
        self.layer_dropout = Dropout(self.dropout)

    def __call__(
        self, inputs: Float[Array, "B W D"], states: tuple[PyTree, ...], *, train: bool
    ) -> tuple[Float[Array, "B W N"], tuple[PyTree, ...]]:
        """The top layer's hidden state and all new states."""
        hidden, after = inputs, []
        for index, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if index:
                hidden = self.layer_dropout(hidden, train=train)
            state = layer.step(layer.project(hidden), state)
            hidden = layer.cell.hidden(state)
            after.append(state)
        return hidden, tuple(after)

    def zeros(self, rows: int) -> tuple[PyTree, ...]:
        """States [B, N] of nothing."""
        return tuple(layer.cell.start(jnp.zeros((rows, self.hidden_size))) for layer in self.layers)

    def top(self, states: tuple[PyTree, ...]) -> Float[Array, "B W N"]:
        """The top layer's hidden state."""
        return self.layers[-1].cell.hidden(states[-1])


class PlainDecoder(nn.Module):
    """No attention: everything about the source is in the first state (Sutskever et al. 2014, section 2)."""

    make_stack: Callable[[int], Stack]
    embedding_size: int
    dropout: float

    def setup(self) -> None:
        self.stack = self.make_stack(self.embedding_size)
        self.output_dropout = Dropout(self.dropout)

    def prepare(self, memory: Array, mask: Array) -> None:
        """Nothing."""

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        """The states alone."""
        return DecoderState(states, (), ())

    def step(
        self,
        embedded: Float[Array, "B W D"],
        position: Int[Array, ""],
        state: DecoderState,
        prepared: PyTree,
        *,
        train: bool,
    ) -> Step:
        """The top layer's hidden state is the output."""
        top, layers = self.stack(embedded, state.layers, train=train)
        return Step(self.output_dropout(top, train=train), None, DecoderState(layers, (), ()))


class LuongDecoder(nn.Module):
    """Attends with the new state: output tanh(W [c; h]) (Luong et al. 2015, section 3, equation 5).

    With ``feeds_input`` the output is read again with the next token (section 3.3). Parameter: ``combine_kernel`` [E + N, N].
    """

    make_stack: Callable[[int], Stack]
    make_attention: Callable[[], RnnAttention]
    embedding_size: int
    hidden_size: int
    memory_size: int
    feeds_input: bool
    dropout: float
    dtype: str = "float32"

    def setup(self) -> None:
        self.stack = self.make_stack(self.embedding_size + self.hidden_size * self.feeds_input)
        self.cross_attention = self.make_attention()
        shape = self.memory_size + self.hidden_size, self.hidden_size
        self.combine_kernel = self.param("combine_kernel", xavier_uniform(0, 1), shape)
        self.output_dropout = Dropout(self.dropout)

    def prepare(self, memory: Array, mask: Array) -> Prepared:
        """What attention makes of the memory."""
        return self.cross_attention.prepare(memory, mask)

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        """Zeros are fed to the first token."""
        top = self.stack.top(states)
        feed = jnp.zeros((*top.shape[:-1], self.hidden_size)) if self.feeds_input else ()
        return DecoderState(states, feed, self.cross_attention.start(prepared, top.shape[1]))

    def step(
        self,
        embedded: Float[Array, "B W D"],
        position: Int[Array, ""],
        state: DecoderState,
        prepared: PyTree,
        *,
        train: bool,
    ) -> Step:
        """The attentional vector is the output."""
        inputs = jnp.concatenate([embedded, state.feed], axis=-1) if self.feeds_input else embedded
        top, layers = self.stack(inputs, state.layers, train=train)
        positions = jnp.full(top.shape[:2], position)
        found = self.cross_attention(top, positions, prepared, state.attention)
        both = jnp.concatenate([found.context, top], axis=-1)
        output = jnp.tanh(contract("BWC,CN->BWN", both, self.combine_kernel, self.dtype))
        output = self.output_dropout(output, train=train)
        return Step(output, found.weights, DecoderState(layers, output if self.feeds_input else (), found.state))


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
    dropout: float
    dtype: str = "float32"

    def setup(self) -> None:
        self.stack = self.make_stack(self.embedding_size + self.memory_size)
        self.cross_attention = self.make_attention()
        shape = self.hidden_size + self.embedding_size + self.memory_size, 2 * self.output_size
        self.readout_kernel = self.param("readout_kernel", xavier_uniform(0, 1), shape)
        self.output_dropout = Dropout(self.dropout)

    def prepare(self, memory: Array, mask: Array) -> Prepared:
        """What attention makes of the memory."""
        return self.cross_attention.prepare(memory, mask)

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        """Nothing is fed."""
        return DecoderState(states, (), self.cross_attention.start(prepared, self.stack.top(states).shape[1]))

    def step(
        self,
        embedded: Float[Array, "B W D"],
        position: Int[Array, ""],
        state: DecoderState,
        prepared: PyTree,
        *,
        train: bool,
    ) -> Step:
        """The maxout layer is the output."""
        previous = self.stack.top(state.layers)
        positions = jnp.full(previous.shape[:2], position)
        found = self.cross_attention(previous, positions, prepared, state.attention)
        inputs = jnp.concatenate([embedded, found.context], axis=-1)
        _, layers = self.stack(inputs, state.layers, train=train)
        read = contract("BWC,CN->BWN", jnp.concatenate([previous, inputs], axis=-1), self.readout_kernel, self.dtype)
        output = jnp.max(read.reshape(*read.shape[:-1], self.output_size, 2), axis=-1)
        return Step(self.output_dropout(output, train=train), found.weights, DecoderState(layers, (), found.state))


Decoder = PlainDecoder | LuongDecoder | BahdanauDecoder
"""A wiring: ``prepare`` once a sentence, ``start`` from the bridge's states, ``step`` for every token."""
