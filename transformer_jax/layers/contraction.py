"""The one matrix product of the house, and with it the one place that decides precision."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array


def contract(subscripts: str, left: Array, right: Array, dtype: str = "float32") -> Array:
    """Einsum of two arrays whose operands are rounded to ``dtype`` and whose sums are taken, and returned, in float32.

    The cotangents are rounded to ``dtype`` too: otherwise both products of the backward pass would silently run in float32
    (mixed precision as in Micikevicius et al. 2018, section 3, with master weights and accumulation in float32).

    Every letter of an operand must occur in the other operand or in the output, as in every projection and attention.
    """
    if dtype == "float32":
        return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)
    return _rounded_contract(subscripts, dtype, left, right)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _rounded_contract(subscripts: str, dtype: str, left: Array, right: Array) -> Array:
    return _forward(subscripts, dtype, left, right)[0]


def _forward(subscripts: str, dtype: str, left: Array, right: Array) -> tuple[Array, tuple[Array, Array]]:
    left, right = left.astype(dtype), right.astype(dtype)
    return _widening_einsum(subscripts, left, right), (left, right)


def _backward(subscripts: str, dtype: str, operands: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    left, right = operands
    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    cotangent = cotangent.astype(dtype)
    return (
        _widening_einsum(f"{output},{right_letters}->{left_letters}", cotangent, right),
        _widening_einsum(f"{output},{left_letters}->{right_letters}", cotangent, left),
    )


def _widening_einsum(subscripts: str, left: Array, right: Array) -> Array:
    """Einsum of low-precision operands with float32 sums."""

    def native(left: Array, right: Array) -> Array:
        return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)

    def widened(left: Array, right: Array) -> Array:
        return native(left.astype(jnp.float32), right.astype(jnp.float32))

    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    if not set(left_letters) & set(right_letters) & set(output):
        return native(left, right)
    # XLA's CPU backend has no batched product of bfloat16 with a float32 result; the rounding of the operands is the same.
    return lax.platform_dependent(left, right, cpu=widened, default=native)


_rounded_contract.defvjp(_forward, _backward)
