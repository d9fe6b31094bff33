"""The one matrix product of the house, and with it the one place that decides precision."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array


@partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def contract(subscripts: str, left: Array, right: Array, dtype: str = "float32") -> Array:
    """Einsum of two arrays whose operands are rounded to ``dtype`` and whose sums are taken, and returned, in float32.

    The cotangents are rounded to ``dtype`` too: otherwise both products of the backward pass would silently run in float32
    (mixed precision as in Micikevicius et al. 2018, section 3, with master weights and accumulation in float32).

    Every letter of an operand must occur in the other operand or in the output, as in every projection and attention.
    """
    return _forward(subscripts, left, right, dtype)[0]


def _forward(subscripts: str, left: Array, right: Array, dtype: str) -> tuple[Array, tuple[Array, Array]]:
    left, right = left.astype(dtype), right.astype(dtype)
    return _widening_einsum(subscripts, left, right), (left, right)


def _backward(subscripts: str, dtype: str, operands: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    left, right = operands
    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    cotangent = cotangent.astype(dtype)
    to_left = _widening_einsum(f"{output},{right_letters}->{left_letters}", cotangent, right)
    return to_left, _gradient_of_right(subscripts, left, cotangent)


def _gradient_of_right(subscripts: str, left: Array, cotangent: Array) -> Array:
    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    if left.dtype != jnp.float32:
        return _widening_einsum(f"{output},{left_letters}->{right_letters}", cotangent, left)
    # Written left first, with the letters as they come: the compiler then transposes this operand and the small result, and
    # not the cotangent, which is the largest array of all where ``right`` is the softmax matrix. (XLA's CPU backend lacks
    # this order for bfloat16.)
    natural = "".join(dict.fromkeys(letter for letter in left_letters + output if letter in right_letters))
    return jnp.einsum(
        f"{natural}->{right_letters}", _widening_einsum(f"{left_letters},{output}->{natural}", left, cotangent)
    )


contract.defvjp(_forward, _backward)


def _widening_einsum(subscripts: str, left: Array, right: Array) -> Array:
    """Einsum of operands of either precision with float32 sums."""

    def native(left: Array, right: Array) -> Array:
        return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)

    def widened(left: Array, right: Array) -> Array:
        return native(left.astype(jnp.float32), right.astype(jnp.float32))

    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    is_batched = bool(set(left_letters) & set(right_letters) & set(output))
    if left.dtype == jnp.float32 or not is_batched:
        return native(left, right)
    # XLA's CPU backend has no batched product of bfloat16 with a float32 result; the rounding of the operands is the same.
    return lax.platform_dependent(left, right, cpu=widened, default=native)
