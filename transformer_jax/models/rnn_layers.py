"""Recurrent layers of the encoder and of the decoder, and a scan of a module over time."""

from collections.abc import Callable
from typing import TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, PyTree
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.recurrent import RecurrentLayer
from transformer_jax.sequence_types import Tokens

MakeLayer = Callable[[int], RecurrentLayer]
"""A recurrent layer for inputs of a given width."""


class RnnEncoder(nn.Module):
    """Layers one above the other (Sutskever et al. 2014), each in one direction or both (Bahdanau et al. 2015, section 3.2)."""

    make_layer: MakeLayer
    num_layers: int
    input_size: int
    hidden_size: int
    is_bidirectional: bool
    dropout: Rate

    def setup(self) -> None:
        self.memory_size = self.hidden_size * (2 if self.is_bidirectional else 1)
        sizes = [self.input_size] + [self.memory_size] * (self.num_layers - 1)
        self.forward_layers = [self.make_layer(size) for size in sizes]
        self.backward_layers = [self.make_layer(size) for size in sizes] if self.is_bidirectional else []
        self.layer_dropout = Dropout(self.dropout)

    def __call__(
        self, inputs: Float[Array, "B S D"], source: Tokens, *, train: bool
    ) -> tuple[Float[Array, "B S E"], tuple[PyTree, ...]]:
        """Annotations of every position, and the last state [B, E] of every layer; the two directions are concatenated."""
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


def mirrored(array: Array, source: Tokens) -> Array:
    """[B, S, ...] with every sentence reversed except for its EOS and padding; its own inverse.

    ``[[5, 6, 7, 2, 0]]`` becomes ``[[7, 6, 5, 2, 0]]``. One sentence a row.
    """
    position = jnp.arange(array.shape[1])[None, :]
    opposite = jnp.sum(jnp.asarray(source.segments) != 0, axis=1)[:, None] - 2 - position
    order = jnp.where(opposite >= 0, opposite, position)
    return jnp.take_along_axis(array, order.reshape(*order.shape, *(1 for _ in array.shape[2:])), axis=1)


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
        """Contribution of the tokens to the gates of the lowest layer."""
        return self.layers[0].project(embedded)

    def read_rest(self, others: Float[Array, "B Q E"]) -> Float[Array, "B Q G N"]:
        """Contribution of the other inputs of that layer to its gates."""
        return self.layers[0].project_rest(others)

    def __call__(
        self, gates: Float[Array, "B Q G N"], states: tuple[PyTree, ...], *, train: bool
    ) -> tuple[Float[Array, "B Q N"], tuple[PyTree, ...]]:
        """The top layer's hidden state and all new states."""
        after = [self.layers[0].step(gates, states[0])]
        for layer, state in zip(self.layers[1:], states[1:], strict=True):
            hidden = self.layer_dropout(layer.cell.hidden(after[-1]), train=train)
            after.append(layer.step(layer.project(hidden), state))
        return self.top(tuple(after)), tuple(after)

    def over_time(
        self, gates: Float[Array, "B T G N"], states: tuple[PyTree, ...], *, train: bool
    ) -> Float[Array, "B T N"]:
        """The top layer's hidden states after every token, from states [B, 1, N], layer by layer as in the encoder."""
        is_token = jnp.ones(gates.shape[:2], bool)
        hidden = gates
        for index, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if index:
                gates = layer.project(self.layer_dropout(hidden, train=train))
            hidden, _ = layer.over_time(gates, jax.tree.map(lambda leaf: leaf[:, 0], state), is_token)
        return hidden

    def zeros(self, rows: int) -> tuple[PyTree, ...]:
        """Zero states [B, N]."""
        return tuple(layer.cell.start(jnp.zeros((rows, self.hidden_size))) for layer in self.layers)

    def top(self, states: tuple[PyTree, ...]) -> Float[Array, "B Q N"]:
        """The top layer's hidden state."""
        return self.layers[-1].cell.hidden(states[-1])


ModuleType = TypeVar("ModuleType", bound=nn.Module)


def over_time(
    step: Callable[[ModuleType, PyTree, PyTree], tuple[PyTree, PyTree]],
    module: ModuleType,
    carry: PyTree,
    inputs: PyTree,
) -> tuple[PyTree, PyTree]:
    """A scan over the second axis, which each step sees with length 1, of inputs and outputs [B, T, ...]."""
    counts: list[dict] = []

    def one(module: ModuleType, carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
        # Flax folds the number of draws so far into every key, and the calls of a scan's body share that number: one call to
        # find constants, one to compile, but one a step under ``jax.disable_jit``. Here all steps count from the same number.
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
    return {name: _copied(count) if isinstance(count, dict) else count for name, count in counters.items()}


def _restore(counters: dict, saved: dict) -> None:
    """Sets the nested ``counters`` in place: other scopes hold the inner dictionaries."""
    for name, count in saved.items():
        if isinstance(count, dict):
            _restore(counters[name], count)
        else:
            counters[name] = count
