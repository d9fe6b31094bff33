"""Recurrent decoders: the wiring of cell, attention and output.

A decoder has three parts. ``read``: contributions of the tokens, all at once. ``advance``: the part
that depends on the previous token, one token at a time. ``write``: the outputs, all at once, from
the results of ``advance``. Training runs whole sentences with ``advance_all``, which equals
``advance`` token by token. Decoding runs one token in every beam.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Int, PyTree
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.layers.recurrent import RecurrentLayer
from transformer_jax.layers.rnn_attention import Prepared, RnnAttention
from transformer_jax.precision import FLOAT32, Precision, einsum

MakeLayer = Callable[[int], RecurrentLayer]
"""Makes a recurrent layer for inputs of a width."""


class Stack(nn.Module):
    """Recurrent layers of a decoder, advanced by one token."""

    make_layer: MakeLayer
    num_layers: int
    input_size: int
    hidden_size: int
    dropout: Rate

    def setup(self) -> None:
        sizes = [self.input_size] + [self.hidden_size] * (self.num_layers - 1)
        self.layers: list[RecurrentLayer] = [self.make_layer(size) for size in sizes]
        self.layer_dropout = Dropout(self.dropout)

    def read(self, embedded: Float[Array, "B Q D"]) -> Float[Array, "B Q G N"]:
        """Return the contribution of the tokens to the gates of the lowest layer."""
        return self.layers[0].project(embedded)

    def read_rest(self, others: Float[Array, "B Q E"]) -> Float[Array, "B Q G N"]:
        """Return the contribution of the other inputs of the lowest layer to its gates."""
        return self.layers[0].project_rest(others)

    def __call__(
        self, gates: Float[Array, "B Q G N"], states: tuple[PyTree, ...], *, train: bool
    ) -> tuple[Float[Array, "B Q N"], tuple[PyTree, ...]]:
        """Return the top layer's hidden state and all new states."""
        after = [self.layers[0].step(gates, states[0])]
        for layer, state in zip(self.layers[1:], states[1:], strict=True):
            hidden = self.layer_dropout(layer.cell.hidden(after[-1]), train=train)
            after.append(layer.step(layer.project(hidden), state))
        return self.top(tuple(after)), tuple(after)

    def over_time(
        self, gates: Float[Array, "B T G N"], states: tuple[PyTree, ...], *, train: bool
    ) -> Float[Array, "B T N"]:
        """Return the top layer's hidden states after every token, from states [B, 1, N]."""
        is_token = jnp.ones(gates.shape[:2], bool)
        hidden = gates
        for index, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if index:
                gates = layer.project(self.layer_dropout(hidden, train=train))
            hidden, _ = layer.over_time(gates, jax.tree.map(lambda leaf: leaf[:, 0], state), is_token)
        return hidden

    def zeros(self, rows: int) -> tuple[PyTree, ...]:
        return tuple(layer.cell.start(jnp.zeros((rows, self.hidden_size))) for layer in self.layers)

    def top(self, states: tuple[PyTree, ...]) -> Float[Array, "B Q N"]:
        return self.layers[-1].cell.hidden(states[-1])


class DecoderState(NamedTuple):
    """State between tokens [B, Q, ...]: of the layers, of the attention, and the fed input."""

    layers: tuple[PyTree, ...]
    feed: PyTree = ()
    attention: PyTree = ()


class DecoderInputs(NamedTuple):
    """Embeddings [B, Q, D] of tokens, and their positions in the target [B, Q]."""

    embedded: Float[Array, "B Q D"]
    positions: Int[Array, "B Q"]


class Written(NamedTuple):
    """``output`` [B, Q, O] for the output matrix; ``weights`` [B, Q, M], None without attention."""

    output: Float[Array, "B Q O"]
    weights: Array | None


class PlainDecoder(nn.Module):
    """No attention: the first state holds the source (Sutskever et al. 2014, section 2)."""

    stack: Stack
    dropout: Rate

    def setup(self) -> None:
        self.output_dropout = Dropout(self.dropout)

    def prepare(self, memory: Array, mask: Array) -> Prepared | None:
        """Return the memory prepared for attention, if there is one."""
        return None

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        return DecoderState(states)

    def read(self, tokens: DecoderInputs) -> Array:
        return self.stack.read(tokens.embedded)

    def advance(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderState, PyTree]:
        """Return the new state, and the top layer's hidden state."""
        top, layers = self.stack(read, state.layers, train=train)
        return DecoderState(layers), top

    def advance_all(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> PyTree:
        """Return the second result of ``advance`` for all tokens."""
        return self.stack.over_time(read, state.layers, train=train)

    def write(self, tokens: DecoderInputs, advanced: PyTree, prepared: PyTree, *, train: bool) -> Written:
        """Return outputs and attention weights from the second results of ``advance``."""
        return Written(self.output_dropout(advanced, train=train), None)


class LuongDecoder(PlainDecoder):
    """Attends with the new state: output tanh(W [c; h]) (Luong et al. 2015, section 3, equation 5).

    Attention has no state and nothing is fed, so all positions attend at once. Parameter:
    ``combine_kernel`` [E + N, N].
    """

    cross_attention: RnnAttention
    hidden_size: int
    memory_size: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        super().setup()
        shape = self.memory_size + self.hidden_size, self.hidden_size
        self.combine_kernel = self.param("combine_kernel", xavier_uniform(0, 1), shape)

    def prepare(self, memory: Array, mask: Array) -> Prepared:
        return self.cross_attention.prepare(memory, mask)

    def write(self, tokens: DecoderInputs, advanced: PyTree, prepared: PyTree, *, train: bool) -> Written:
        state = self.cross_attention.start(prepared, advanced.shape[1])
        attended = self.cross_attention(advanced, tokens.positions, prepared, state)
        return Written(self._combined(attended.context, advanced, train=train), attended.weights)

    def _combined(self, context: Array, top: Array, *, train: bool) -> Array:
        both = jnp.concatenate([context, top], axis=-1)
        output = jnp.tanh(einsum("BQC,CN->BQN", both, self.combine_kernel, self.precision))
        return self.output_dropout(output, train=train)


def _token_by_token(
    decoder: PlainDecoder, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
) -> PyTree:
    """Implement ``advance_all`` by a scan, for attention that depends on the previous token."""

    def advance(decoder: PlainDecoder, state: DecoderState, at: PyTree) -> tuple[DecoderState, PyTree]:
        read, positions = at
        return decoder.advance(read, positions, state, prepared, train=train)

    return over_time(advance, decoder, state, (read, positions))[1]


class InputFeedingDecoder(LuongDecoder):
    """The attentional vector is an input of the next token (Luong et al. 2015, section 3.3)."""

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        top = self.stack.top(states)
        feed = jnp.zeros((*top.shape[:-1], self.hidden_size))
        return DecoderState(states, feed, self.cross_attention.start(prepared, top.shape[1]))

    def advance(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderState, PyTree]:
        """Return the new state, and the output and weights."""
        top, layers = self.stack(read + self.stack.read_rest(state.feed), state.layers, train=train)
        attended = self.cross_attention(top, positions, prepared, state.attention)
        output = self._combined(attended.context, top, train=train)
        return DecoderState(layers, output, attended.state), (output, attended.weights)

    advance_all = _token_by_token

    def write(self, tokens: DecoderInputs, advanced: PyTree, prepared: PyTree, *, train: bool) -> Written:
        return Written(*advanced)


class BahdanauDecoder(PlainDecoder):
    """Attends with the previous state; cell and output read the context (Bahdanau et al. 2015).

    Appendix A.1.2 and A.2.2. The output is the maxout, over pairs, of a layer of previous state,
    previous token and context. Parameter: ``readout_kernel`` [N + D + E, 2 O].
    """

    cross_attention: RnnAttention
    readout_size: int
    output_size: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        super().setup()
        shape = self.readout_size, 2 * self.output_size
        self.readout_kernel = self.param("readout_kernel", xavier_uniform(0, 1), shape)

    def prepare(self, memory: Array, mask: Array) -> Prepared:
        return self.cross_attention.prepare(memory, mask)

    def start(self, states: tuple[PyTree, ...], prepared: PyTree) -> DecoderState:
        return DecoderState(states, attention=self.cross_attention.start(prepared, self.stack.top(states).shape[1]))

    def advance(
        self, read: Array, positions: Array, state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[DecoderState, PyTree]:
        """Return the new state, and the previous one with the context and the weights."""
        previous = self.stack.top(state.layers)
        attended = self.cross_attention(previous, positions, prepared, state.attention)
        _, layers = self.stack(read + self.stack.read_rest(attended.context), state.layers, train=train)
        return DecoderState(layers, (), attended.state), (previous, attended.context, attended.weights)

    advance_all = _token_by_token

    def write(self, tokens: DecoderInputs, advanced: PyTree, prepared: PyTree, *, train: bool) -> Written:
        previous, context, weights = advanced
        inputs = jnp.concatenate([previous, tokens.embedded, context], axis=-1)
        readout = einsum("BQC,CN->BQN", inputs, self.readout_kernel, self.precision)
        output = jnp.max(readout.reshape(*readout.shape[:-1], self.output_size, 2), axis=-1)
        return Written(self.output_dropout(output, train=train), weights)


ModuleType = TypeVar("ModuleType", bound=nn.Module)


def over_time(
    step: Callable[[ModuleType, PyTree, PyTree], tuple[PyTree, PyTree]],
    module: ModuleType,
    carry: PyTree,
    inputs: PyTree,
) -> tuple[PyTree, PyTree]:
    """Scan the second axis of inputs [B, T, ...], which ``step`` sees with length 1."""
    counts: list[dict] = []

    def one(module: ModuleType, carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
        # Flax folds the number of keys so far into every key, and the calls of a scan's body share
        # that number: one call to find constants, one to compile, but one a step under
        # ``jax.disable_jit``. Here all steps count from the same number.
        assert module.scope is not None
        counts.append(_copied(module.scope.rng_counters))
        _restore(module.scope.rng_counters, counts[:2][-1])
        carry, outputs = step(module, carry, jax.tree.map(lambda leaf: leaf[:, None], at))
        return carry, jax.tree.map(lambda leaf: leaf[:, 0], outputs)

    rngs: dict = {"params": False, "dropout": True}
    scan = nn.scan(one, variable_broadcast="params", variable_axes={"intermediates": 0}, split_rngs=rngs)
    carry, outputs = scan(module, carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), inputs))
    return carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), outputs)


def _copied(counters: dict) -> dict:
    """Copy the nested ``counters``, but not their keys, which Flax compares by identity."""
    return {name: _copied(count) if isinstance(count, dict) else count for name, count in counters.items()}


def _restore(counters: dict, saved: dict) -> None:
    """Set the nested ``counters`` in place: other scopes hold the inner dictionaries."""
    for name, count in saved.items():
        if isinstance(count, dict):
            _restore(counters[name], count)
        else:
            counters[name] = count
