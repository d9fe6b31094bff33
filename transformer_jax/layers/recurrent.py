"""Recurrent layers (LSTM, GRU) over padded rows, as one scan with a custom backward pass."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, PyTree
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.precision import FLOAT32, Precision, einsum


@dataclass(frozen=True)
class Cell:
    """A recurrent cell.

    ``step`` takes the contributions of the input and of the state to the gates.
    """

    num_gates: ClassVar[int]

    def start(self, like: Float[Array, "*B N"]) -> PyTree:
        """Return the state before the first token: zeros, with leaves of the shape of ``like``."""
        return jnp.zeros_like(like)

    def hidden(self, state: PyTree) -> Float[Array, "*B N"]:
        """Return the part of a state that attention and the next layer read."""
        return state

    def step(self, from_input: Float[Array, "*B G N"], from_hidden: Float[Array, "*B G N"], state: PyTree) -> PyTree:
        raise NotImplementedError


class LstmState(NamedTuple):
    """Hidden state and memory, both [..., N]."""

    hidden: Array
    memory: Array


@dataclass(frozen=True)
class LstmCell(Cell):
    """Long short-term memory with forget gate (Gers et al. 2000).

    Gates in order: input, forget, candidate, output. No peepholes, as in cuDNN and PyTorch, unlike
    Sutskever et al. 2014 (section 2), who follow Graves 2013.
    """

    num_gates: ClassVar[int] = 4

    def start(self, like: Float[Array, "*B N"]) -> LstmState:
        return LstmState(jnp.zeros_like(like), jnp.zeros_like(like))

    def hidden(self, state: LstmState) -> Float[Array, "*B N"]:
        return state.hidden

    def step(
        self, from_input: Float[Array, "*B G N"], from_hidden: Float[Array, "*B G N"], state: LstmState
    ) -> LstmState:
        """c' = f c + i g; h' = o tanh(c')."""
        gates = _split_gates(from_input + from_hidden)
        enter, keep, leave = jax.nn.sigmoid(gates[0]), jax.nn.sigmoid(gates[1]), jax.nn.sigmoid(gates[3])
        memory = keep * state.memory + enter * jnp.tanh(gates[2])
        return LstmState(leave * jnp.tanh(memory), memory)


@dataclass(frozen=True)
class GruCell(Cell):
    """Gated recurrent unit (Cho et al. 2014). Gates in order: reset, update, candidate.

    The reset gate multiplies U h, not h, as in cuDNN and PyTorch, so that one product a step serves
    all gates.
    """

    num_gates: ClassVar[int] = 3

    def step(
        self, from_input: Float[Array, "*B G N"], from_hidden: Float[Array, "*B G N"], state: Float[Array, "*B N"]
    ) -> Float[Array, "*B N"]:
        """h' = z h + (1 - z) tanh(W x + r U h)."""
        inputs, hiddens = _split_gates(from_input), _split_gates(from_hidden)
        reset, update = jax.nn.sigmoid(inputs[0] + hiddens[0]), jax.nn.sigmoid(inputs[1] + hiddens[1])
        candidate = jnp.tanh(inputs[2] + reset * hiddens[2])
        return update * state + (1 - update) * candidate


CELLS: dict[str, type[Cell]] = {"lstm": LstmCell, "gru": GruCell}


class RecurrentLayer(nn.Module):
    """One layer of cells; the contribution of all inputs is one product before the scan over time.

    Parameters: ``input_kernel`` [D, G, N], ``recurrent_kernel`` [N, G, N], ``input_bias`` and
    ``recurrent_bias`` [G, N]. Kernels start at the Xavier values of a gate divided by sqrt(G). At
    the full values Luong's general attention learned more slowly: after 600 updates on Multi30k the
    validation loss was 3.56, against 3.15.
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
        """Return the hidden states, and the state [B, N] after the last position read."""
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
        recurrence = Recurrence(self.cell, self.precision, backward)
        inputs = jnp.moveaxis(from_inputs_BLGN, 1, 0), is_token_BL.T
        hidden_LBN, state = recurrent_states(recurrence, *inputs, self.recurrent_kernel, self.recurrent_bias, start)
        return jnp.moveaxis(hidden_LBN, 0, 1), state

    def project(self, inputs: Float[Array, "*B D"]) -> Float[Array, "*B G N"]:
        """Return the contribution of inputs or their first columns to the gates, with bias."""
        return gates_from(inputs, self.input_kernel[: inputs.shape[-1]], self.input_bias, self.precision)

    def project_rest(self, inputs: Float[Array, "*B D"]) -> Float[Array, "*B G N"]:
        """Return the contribution of the last columns of the inputs to the gates, without bias."""
        kernel = self.input_kernel[-inputs.shape[-1] :]
        return gates_from(inputs, kernel, jnp.zeros_like(self.input_bias), self.precision)

    def step(self, from_input: Float[Array, "*B G N"], state: PyTree) -> PyTree:
        from_hidden = gates_from(self.cell.hidden(state), self.recurrent_kernel, self.recurrent_bias, self.precision)
        return self.cell.step(from_input, from_hidden, state)


class Recurrence(NamedTuple):
    """The cell, the precision of its product, and whether time runs backward."""

    cell: Cell
    precision: Precision
    backward: bool


class _Residuals(NamedTuple):
    """The contributions to the gates and the state before every position, for the backward pass."""

    from_inputs: Array
    from_hidden: Array
    before: PyTree
    is_token: Array
    kernel: Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def recurrent_states(
    recurrence: Recurrence,
    from_inputs_LBGN: Float[Array, "L B G N"],
    is_token_LB: Bool[Array, "L B"],
    kernel_NGN: Float[Array, "N G N"],
    bias_GN: Float[Array, "G N"],
    start: PyTree,
) -> tuple[Float[Array, "L B N"], PyTree]:
    """Return the hidden states of every position and the last state [B, N].

    Padding leaves the state unchanged. The gradient of ``kernel_NGN`` is one product over all
    positions after the loop. Automatic differentiation would add up a matrix at every step.
    """
    return _forward(recurrence, from_inputs_LBGN, is_token_LB, kernel_NGN, bias_GN, start)[0]


def _forward(
    recurrence: Recurrence, from_inputs: Array, is_token: Array, kernel: Array, bias: Array, start: PyTree
) -> tuple[tuple[Array, PyTree], _Residuals]:
    cell = recurrence.cell

    def advance(state: PyTree, at: tuple[Array, Array]) -> tuple[PyTree, tuple[Array, Array, PyTree]]:
        from_input, is_token = at
        from_hidden = gates_from(cell.hidden(state), kernel, bias, recurrence.precision)
        new = _where(is_token, cell.step(from_input, from_hidden, state), state)
        return new, (cell.hidden(new), from_hidden, state)

    end, (hidden, from_hidden, before) = lax.scan(advance, start, (from_inputs, is_token), reverse=recurrence.backward)
    return (hidden, end), _Residuals(from_inputs, from_hidden, before, is_token, kernel)


def _backward(
    recurrence: Recurrence, saved: _Residuals, cotangents: tuple[Array, PyTree]
) -> tuple[Array, None, Array, Array, PyTree]:
    cell, kernel = recurrence.cell, saved.kernel
    to_hidden, to_end = cotangents
    rows, columns = kernel.shape[0], kernel.reshape(kernel.shape[0], -1)

    def go_back(to_state: PyTree, at: PyTree) -> tuple[PyTree, tuple[Array, Array]]:
        to_hidden, from_input, from_hidden, before, is_token = at
        _, hidden_vjp = jax.vjp(cell.hidden, before)
        (from_outputs,) = hidden_vjp(to_hidden)
        to_new = jax.tree.map(jnp.add, to_state, from_outputs)
        _, step_vjp = jax.vjp(cell.step, from_input, from_hidden, before)
        zeros = jax.tree.map(jnp.zeros_like, to_new)
        to_input, to_gates, to_before = step_vjp(_where(is_token, to_new, zeros))
        flat = to_gates.reshape(to_gates.shape[0], -1)
        (through_product,) = hidden_vjp(einsum("BC,DC->BD", flat, columns, recurrence.precision))
        kept = _where(is_token, zeros, to_new)
        return jax.tree.map(lambda *parts: sum(parts), to_before, through_product, kept), (to_input, to_gates)

    at = to_hidden, saved.from_inputs, saved.from_hidden, saved.before, saved.is_token
    to_start, (to_inputs, to_gates) = lax.scan(go_back, to_end, at, reverse=not recurrence.backward)
    hidden = jax.vmap(cell.hidden)(saved.before).reshape(-1, rows)
    to_kernel = einsum("BD,BC->DC", hidden, to_gates.reshape(len(hidden), -1), recurrence.precision)
    return to_inputs, None, to_kernel.reshape(kernel.shape), to_gates.sum((0, 1)), to_start


recurrent_states.defvjp(_forward, _backward)


def gates_from(
    inputs: Float[Array, "*B D"], kernel_DGN: Float[Array, "D G N"], bias_GN: Float[Array, "G N"], precision: Precision
) -> Float[Array, "*B G N"]:
    # Two matrices: XLA's CPU backend lacks the bfloat16 gradient of a kernel with three axes.
    rows, matrix = inputs.reshape(-1, inputs.shape[-1]), kernel_DGN.reshape(kernel_DGN.shape[0], -1)
    gates = einsum("BD,DC->BC", rows, matrix, precision) + bias_GN.reshape(1, -1)
    return gates.reshape(*inputs.shape[:-1], *bias_GN.shape)


def _where(condition_B: Bool[Array, "B"], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda one, other: jnp.where(condition_B[:, None], one, other), new, old)


def _split_gates(gates: Float[Array, "*B G N"]) -> list[Float[Array, "*B N"]]:
    # The gradient of a split is one concatenation; of an index, a padded array for every gate.
    axis = gates.ndim - 2
    return [lax.squeeze(gate, (axis,)) for gate in lax.split(gates, [1] * gates.shape[axis], axis)]
