"""The recurrent encoder: layers of cells over the source, in one direction or both."""

from collections.abc import Callable

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
        """Annotations of every position, and of every layer the last state [B, E], the two directions side by side."""
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
    """[B, S, ...] with every sentence back to front, its EOS left at the end, padding in its place; its own inverse.

    ``[[5, 6, 7, 2, 0]]`` becomes ``[[7, 6, 5, 2, 0]]``. One sentence a row.
    """
    place = jnp.arange(array.shape[1])[None, :]
    opposite = jnp.sum(jnp.asarray(source.segments) != 0, axis=1)[:, None] - 2 - place
    places = jnp.where(opposite >= 0, opposite, place)
    return jnp.take_along_axis(array, places.reshape(*places.shape, *(1 for _ in array.shape[2:])), axis=1)
