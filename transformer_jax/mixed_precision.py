"""The one matrix product of the package, and the one place that decides its precision."""

import math
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
    # Written first, an operand is transposed inside the product, so the smaller one comes first, and the small result is turned
    # afterwards. (XLA's CPU backend lacks this order for bfloat16.)
    factors = [(left_letters, left), (output, cotangent)]
    (first_letters, first), (second_letters, second) = sorted(factors, key=lambda factor: factor[1].size)
    natural = "".join(letter for letter in dict.fromkeys(first_letters + second_letters) if letter in right_letters)
    gradient = _float32_einsum(first_letters, second_letters, natural, first, second)
    if natural != right_letters and gradient.size < first.size:
        # Otherwise the compiler makes the turn part of the product, for which its CPU backend has only a slower kernel.
        gradient = lax.optimization_barrier(gradient)
    return jnp.einsum(f"{natural}->{right_letters}", gradient)


def _float32_einsum(first_letters: str, second_letters: str, output: str, first: Array, second: Array) -> Array:
    """Einsum of two arrays; where it sums over the letters that both begin with, these are one axis.

    Of several, the CPU backend would first make a transposed copy of an operand.
    """
    summed = "".join(letter for letter in first_letters if letter not in output)
    if set(first_letters) & set(second_letters) != set(summed) or not (
        first_letters.startswith(summed) and second_letters.startswith(summed)
    ):
        return jnp.einsum(f"{first_letters},{second_letters}->{output}", first, second)
    shapes = [array.shape[len(summed) :] for array in (first, second)]
    rows = [array.reshape(-1, math.prod(shape)) for array, shape in zip((first, second), shapes, strict=True)]
    return jnp.einsum("Nx,Ny->xy", *rows).reshape(shapes[0] + shapes[1])


contract.defvjp(_forward, _backward)


def _widening_einsum(subscripts: str, left: Array, right: Array) -> Array:
    """Einsum of operands of either precision with float32 sums."""
    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    is_batched = bool(set(left_letters) & set(right_letters) & set(output))
    if left.dtype == jnp.float32 or not is_batched:
        return _native(subscripts, left, right)
    # XLA's CPU backend has no batched product of bfloat16 with a float32 result; the rounding of the operands is the same.
    return lax.platform_dependent(left, right, cpu=partial(_widened, subscripts), default=partial(_native, subscripts))


def _native(subscripts: str, left: Array, right: Array) -> Array:
    return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)


def _widened(subscripts: str, left: Array, right: Array) -> Array:
    return _native(subscripts, left.astype(jnp.float32), right.astype(jnp.float32))
