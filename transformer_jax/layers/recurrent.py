"""Recurrent layers: LSTM and GRU, in either direction, over padded rows."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, PyTree
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.layers.recurrence import Cell, Recurrence, gates_from, recurrent_states
from transformer_jax.precision import FLOAT32, Precision


class LstmState(NamedTuple):
    """Hidden state and memory, both [..., N]."""

    hidden: Array
    memory: Array


@dataclass(frozen=True)
class LstmCell:
    """Long short-term memory with forget gate (Gers et al. 2000). Gates in order: input, forget, candidate, output.

    Departs from Sutskever et al. 2014 (section 3.4), who take the formulation of Graves 2013: no peepholes, as in cuDNN and
    PyTorch.
    """

    num_gates: ClassVar[int] = 4

    def start(self, like: Float[Array, "*B N"]) -> LstmState:
        """Zeros."""
        return LstmState(jnp.zeros_like(like), jnp.zeros_like(like))

    def hidden(self, state: LstmState) -> Float[Array, "*B N"]:
        """The hidden state."""
        return state.hidden

    def step(
        self, from_input: Float[Array, "*B G N"], from_hidden: Float[Array, "*B G N"], state: LstmState
    ) -> LstmState:
        """c' = f c + i g; h' = o tanh(c')."""
        gates = _gates_of(from_input + from_hidden)
        enter, keep, leave = jax.nn.sigmoid(gates[0]), jax.nn.sigmoid(gates[1]), jax.nn.sigmoid(gates[3])
        memory = keep * state.memory + enter * jnp.tanh(gates[2])
        return LstmState(leave * jnp.tanh(memory), memory)


@dataclass(frozen=True)
class GruCell:
    """Gated recurrent unit (Cho et al. 2014), gates in order: reset, update, candidate.

    Departs from the paper, as cuDNN and PyTorch do: the reset gate multiplies U h and not h, so that one product a step serves
    all gates.
    """

    num_gates: ClassVar[int] = 3

    def start(self, like: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
        """Zeros."""
        return jnp.zeros_like(like)

    def hidden(self, state: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
        """The state itself."""
        return state

    def step(
        self, from_input: Float[Array, "*B G N"], from_hidden: Float[Array, "*B G N"], state: Float[Array, "*B N"]
    ) -> Float[Array, "*B N"]:
        """h' = z h + (1 - z) tanh(W x + r U h)."""
        inputs, hiddens = _gates_of(from_input), _gates_of(from_hidden)
        reset, update = jax.nn.sigmoid(inputs[0] + hiddens[0]), jax.nn.sigmoid(inputs[1] + hiddens[1])
        candidate = jnp.tanh(inputs[2] + reset * hiddens[2])
        return update * state + (1 - update) * candidate


CELLS: dict[str, type[Cell]] = {"lstm": LstmCell, "gru": GruCell}


class RecurrentLayer(nn.Module):
    """One layer of cells with its weights; what the inputs contribute is one product, before the scan over time.

    Parameters: ``input_kernel`` [D, G, N], ``recurrent_kernel`` [N, G, N], ``input_bias`` and ``recurrent_bias`` [G, N].
    """

    cell: Cell
    input_size: int
    hidden_size: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        gates, width = self.cell.num_gates, self.hidden_size
        self.input_kernel = self.param("input_kernel", xavier_uniform(0, 2), (self.input_size, gates, width))
        self.recurrent_kernel = self.param("recurrent_kernel", xavier_uniform(0, 2), (width, gates, width))
        self.input_bias = self.param("input_bias", nn.initializers.zeros, (gates, width))
        self.recurrent_bias = self.param("recurrent_bias", nn.initializers.zeros, (gates, width))

    def __call__(
        self, inputs_BLD: Float[Array, "B L D"], is_token_BL: Bool[Array, "B L"], *, backward: bool = False
    ) -> tuple[Float[Array, "B L N"], PyTree]:
        """Hidden states of every position, and the state [B, N] after the last one (backward: after the first).

        Starts from zeros. Padding leaves the state unchanged.
        """
        start = self.cell.start(jnp.zeros((inputs_BLD.shape[0], self.hidden_size), jnp.float32))
        return self.over_time(self.project(inputs_BLD), start, is_token_BL, backward=backward)

    def over_time(
        self,
        from_inputs_BLGN: Float[Array, "B L G N"],
        start: PyTree,
        is_token_BL: Bool[Array, "B L"],
        *,
        backward: bool = False,
    ) -> tuple[Float[Array, "B L N"], PyTree]:
        """The same, from what ``project`` made of the inputs, and from any state."""
        recurrence = Recurrence(self.cell, self.precision, backward)
        inputs = jnp.moveaxis(from_inputs_BLGN, 1, 0), is_token_BL.T
        hidden_LBN, state = recurrent_states(recurrence, *inputs, self.recurrent_kernel, self.recurrent_bias, start)
        return jnp.moveaxis(hidden_LBN, 0, 1), state

    def project(self, inputs: Float[Array, "*B D"]) -> Float[Array, "*B G N"]:
        """Contribution of the inputs to the gates; narrower inputs are the first columns. Includes the biases."""
        return gates_from(inputs, self.input_kernel[: inputs.shape[-1]], self.input_bias, self.precision)

    def project_rest(self, inputs: Float[Array, "*B D"]) -> Float[Array, "*B G N"]:
        """Contribution of the last columns of the input to the gates: ``project`` in two parts."""
        kernel = self.input_kernel[-inputs.shape[-1] :]
        return gates_from(inputs, kernel, jnp.zeros_like(self.input_bias), self.precision)

    def step(self, from_input: Float[Array, "*B G N"], state: PyTree) -> PyTree:
        """The state after one more token, from what ``project`` made of it."""
        hidden = self.cell.hidden(state)
        from_hidden = gates_from(hidden, self.recurrent_kernel, self.recurrent_bias, self.precision)
        return self.cell.step(from_input, from_hidden, state)


def _gates_of(gates: Float[Array, "*B G N"]) -> list[Float[Array, "*B N"]]:
    """The gates one by one."""
    # A split, whose gradient is one concatenation; the gradient of an index is a padded array for each gate, to be added up.
    axis = gates.ndim - 2
    return [lax.squeeze(gate, (axis,)) for gate in lax.split(gates, [1] * gates.shape[axis], axis)]
