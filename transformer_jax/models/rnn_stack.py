"""The recurrent layers of a decoder."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, PyTree
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.recurrent import RecurrentLayer
from transformer_jax.models.rnn_encoder import MakeLayer


class Stack(nn.Module):
    """Recurrent layers one above the other, advanced by one token."""

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
        """The top layer's hidden states after every token, from states [B, 1, N]: layer by layer, as in the encoder."""
        is_token = jnp.ones(gates.shape[:2], bool)
        hidden = gates
        for index, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if index:
                gates = layer.project(self.layer_dropout(hidden, train=train))
            hidden, _ = layer.over_time(gates, jax.tree.map(lambda leaf: leaf[:, 0], state), is_token)
        return hidden

    def zeros(self, rows: int) -> tuple[PyTree, ...]:
        """States [B, N] of nothing."""
        return tuple(layer.cell.start(jnp.zeros((rows, self.hidden_size))) for layer in self.layers)

    def top(self, states: tuple[PyTree, ...]) -> Float[Array, "B Q N"]:
        """The top layer's hidden state."""
        return self.layers[-1].cell.hidden(states[-1])
