"""Recurrent layers as one scan over time: LSTM and GRU, in either direction, over padded or packed rows."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, PyTree
from transformer_jax.contraction import contract
from transformer_jax.layers.initialization import xavier_uniform


@runtime_checkable
class Cell(Protocol):
    """One kind of recurrence: pure functions of what the input and the previous hidden state contribute to its gates."""

    num_gates: ClassVar[int]

    def start(self, like: Float[Array, "*B N"]) -> PyTree:
        """The state before the first token: zeros, with leaves of the shape of ``like``."""

    def hidden(self, state: PyTree) -> Float[Array, "*B N"]:
        """What the layer above, and the attention, see of a state."""

    def step(self, from_input: Float[Array, "*B G N"], from_hidden: Float[Array, "*B G N"], state: PyTree) -> PyTree:
        """The next state."""


class LstmState(NamedTuple):
    """Hidden state and memory, both [..., N]."""

    hidden: Array
    memory: Array


@dataclass(frozen=True)
class LstmCell:
    """Long short-term memory with forget gate, without peepholes (Gers et al. 2000; as in Sutskever et al. 2014).

    Gates in order: input, forget, candidate, output.
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
    dtype: str = "float32"

    def setup(self) -> None:
        gates, width = self.cell.num_gates, self.hidden_size
        self.input_kernel = self.param("input_kernel", xavier_uniform(0, 2), (self.input_size, gates, width))
        self.recurrent_kernel = self.param("recurrent_kernel", xavier_uniform(0, 2), (width, gates, width))
        self.input_bias = self.param("input_bias", nn.initializers.zeros, (gates, width))
        self.recurrent_bias = self.param("recurrent_bias", nn.initializers.zeros, (gates, width))

    def __call__(
        self,
        inputs_BLD: Float[Array, "B L D"],
        is_token_BL: Bool[Array, "B L"],
        starts_BL: Bool[Array, "B L"],
        *,
        backward: bool = False,
    ) -> tuple[Float[Array, "B L N"], PyTree]:
        """Hidden states of every position, and the state [B, N] after the last one (backward: after the first).

        A position that is no token leaves the state as it is. Where ``starts_BL`` is True the state before it is zero: at the
        first token, or backward at the last, of each sentence of a packed row.
        """
        from_inputs_LBGN = jnp.moveaxis(self.project(inputs_BLD), 1, 0)

        def advance(state: PyTree, at: tuple[Array, Array, Array]) -> tuple[PyTree, Array]:
            from_input, is_token, starts = at
            state = _where(starts, self.cell.start(self.cell.hidden(state)), state)
            state = _where(is_token, self.step(from_input, state), state)
            return state, self.cell.hidden(state)

        start = self.cell.start(jnp.zeros((inputs_BLD.shape[0], self.hidden_size), jnp.float32))
        positions = from_inputs_LBGN, is_token_BL.T, starts_BL.T
        state, hidden_LBN = lax.scan(advance, start, positions, reverse=backward)
        return jnp.moveaxis(hidden_LBN, 0, 1), state

    def project(self, inputs: Float[Array, "*B D"]) -> Float[Array, "*B G N"]:
        """What inputs contribute to the gates; of narrower ones, as the first columns of the input, the biases included."""
        return self._gates(inputs, self.input_kernel[: inputs.shape[-1]], self.input_bias)

    def project_rest(self, inputs: Float[Array, "*B D"]) -> Float[Array, "*B G N"]:
        """What the last columns of the input contribute besides: ``project`` of both in two parts."""
        return self._gates(inputs, self.input_kernel[-inputs.shape[-1] :], jnp.zeros_like(self.input_bias))

    def step(self, from_input: Float[Array, "*B G N"], state: PyTree) -> PyTree:
        """The state after one more token, from what ``project`` made of it."""
        from_hidden = self._gates(self.cell.hidden(state), self.recurrent_kernel, self.recurrent_bias)
        return self.cell.step(from_input, from_hidden, state)

    def _gates(
        self, inputs: Float[Array, "*B D"], kernel_DGN: Float[Array, "D G N"], bias_GN: Float[Array, "G N"]
    ) -> Float[Array, "*B G N"]:
        # As a product of two matrices: XLA's CPU backend lacks the bfloat16 gradient of a kernel with three axes.
        rows, matrix = inputs.reshape(-1, inputs.shape[-1]), kernel_DGN.reshape(kernel_DGN.shape[0], -1)
        gates = contract("BD,DC->BC", rows, matrix, self.dtype) + bias_GN.reshape(1, -1)
        return gates.reshape(*inputs.shape[:-1], *bias_GN.shape)


def _gates_of(gates: Float[Array, "*B G N"]) -> list[Float[Array, "*B N"]]:
    """The gates one by one."""
    return [lax.index_in_dim(gates, gate, axis=-2, keepdims=False) for gate in range(gates.shape[-2])]


def _where(condition_B: Bool[Array, "B"], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda one, other: jnp.where(condition_B[:, None], one, other), new, old)
