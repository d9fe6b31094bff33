"""A recurrence over time as one scan, with a custom backward pass that keeps large products out of its loop."""

from functools import partial
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, PyTree
from transformer_jax.precision import Precision, einsum


@runtime_checkable
class Cell(Protocol):
    """One kind of recurrence: pure functions of what the input and the previous hidden state contribute to its gates."""

    num_gates: ClassVar[int]

    def start(self, like: Float[Array, "*B N"]) -> PyTree:
        """The state before the first token: zeros, with leaves of the shape of ``like``."""

    def hidden(self, state: PyTree) -> Float[Array, "*B N"]:
        """The part of a state that the layer above, and the attention, read."""

    def step(self, from_input: Float[Array, "*B G N"], from_hidden: Float[Array, "*B G N"], state: PyTree) -> PyTree:
        """The next state."""


class Recurrence(NamedTuple):
    """A recurrence: the cell, the precision of its product, and whether time runs from the last position to the first."""

    cell: Cell
    precision: Precision
    backward: bool


class _Saved(NamedTuple):
    """For the backward pass, of every position: what entered the cell, the gates' two parts and the state before it."""

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
    """Hidden states of every position and the state [B, N] at the end; where there is no token the state stays as it was.

    The gradient of ``kernel_NGN`` is one product over all positions after the loop, where differentiating the loop would add
    up a matrix at every step.
    """
    return _forward(recurrence, from_inputs_LBGN, is_token_LB, kernel_NGN, bias_GN, start)[0]


def _forward(
    recurrence: Recurrence, from_inputs: Array, is_token: Array, kernel: Array, bias: Array, start: PyTree
) -> tuple[tuple[Array, PyTree], _Saved]:
    cell = recurrence.cell

    def advance(state: PyTree, at: tuple[Array, Array]) -> tuple[PyTree, tuple[Array, Array, PyTree]]:
        from_input, is_token = at
        from_hidden = gates_from(cell.hidden(state), kernel, bias, recurrence.precision)
        new = _where(is_token, cell.step(from_input, from_hidden, state), state)
        return new, (cell.hidden(new), from_hidden, state)

    end, (hidden, from_hidden, before) = lax.scan(advance, start, (from_inputs, is_token), reverse=recurrence.backward)
    return (hidden, end), _Saved(from_inputs, from_hidden, before, is_token, kernel)


def _backward(
    recurrence: Recurrence, saved: _Saved, cotangents: tuple[Array, PyTree]
) -> tuple[Array, None, Array, Array, PyTree]:
    cell, kernel = recurrence.cell, saved.kernel
    to_hidden, to_end = cotangents
    rows, columns = kernel.shape[0], kernel.reshape(kernel.shape[0], -1)

    def go_back(to_state: PyTree, at: PyTree) -> tuple[PyTree, tuple[Array, Array]]:
        to_hidden, from_input, from_hidden, before, is_token = at
        _, of_hidden = jax.vjp(cell.hidden, before)
        (seen,) = of_hidden(to_hidden)
        to_new = jax.tree.map(jnp.add, to_state, seen)
        _, of_step = jax.vjp(cell.step, from_input, from_hidden, before)
        none = jax.tree.map(jnp.zeros_like, to_new)
        to_input, to_gates, to_before = of_step(_where(is_token, to_new, none))
        flat = to_gates.reshape(to_gates.shape[0], -1)
        (through_product,) = of_hidden(einsum("BC,DC->BD", flat, columns, recurrence.precision))
        kept = _where(is_token, none, to_new)
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
    """Contribution of the inputs to the gates."""
    # As a product of two matrices: XLA's CPU backend lacks the bfloat16 gradient of a kernel with three axes.
    rows, matrix = inputs.reshape(-1, inputs.shape[-1]), kernel_DGN.reshape(kernel_DGN.shape[0], -1)
    gates = einsum("BD,DC->BC", rows, matrix, precision) + bias_GN.reshape(1, -1)
    return gates.reshape(*inputs.shape[:-1], *bias_GN.shape)


def _where(condition_B: Bool[Array, "B"], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda one, other: jnp.where(condition_B[:, None], one, other), new, old)
