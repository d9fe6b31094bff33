"""Mixed precision: one einsum for every matrix product of the package."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array

TF32_MANTISSA_BITS = 10
"""The mantissa of NVIDIA's TensorFloat-32, which has the exponent of float32."""


@dataclass(frozen=True)
class Precision:
    """A mixed-precision policy (Micikevicius et al. 2018, section 3).

    ``compute``: type of the operands of matrix products, forward and backward. ``output``: type of
    their results, which are the hidden states. ``logits``: type of the logits of a training loss.
    Parameters, their gradients, optimizer moments, residual sums (rounded to ``output`` in
    post-norm), norm statistics, softmax, losses and the sums inside products are always float32.

    ``output_layer_compute``: type of the operands in the output layer, if another than ``compute``.
    ``product`` is the algorithm of float32 products. Operands keep ``mantissa_bits`` of their
    mantissa (None: all). Backward passes merge rows and positions into one axis if
    ``merges_positions``, which is faster on a CPU and impossible if both axes are sharded.
    """

    compute: str = "float32"
    output: str = "float32"
    logits: str = "float32"
    product: lax.Precision | None = None
    mantissa_bits: int | None = None
    merges_positions: bool = True
    output_layer_compute: str = ""

    @property
    def of_output_layer(self) -> "Precision":
        """This policy for the output layer, from hidden states to logits."""
        return replace(self, compute=self.output_layer_compute or self.compute)

    @property
    def float32_output(self) -> "Precision":
        """This policy with float32 results: for scores, gates, and logits except in training."""
        return replace(self, output="float32", logits="float32")

    @property
    def of_logits(self) -> "Precision":
        """This policy with results in the type of the loss's logits."""
        return replace(self, output=self.logits)

    def rounded(self, array: Array) -> Array:
        """Return ``array`` as an operand of a product."""
        array = array.astype(self.compute)
        return array if self.mantissa_bits is None else lax.reduce_precision(array, 8, self.mantissa_bits)


FLOAT32 = Precision()
POLICIES: Mapping[str, Precision] = {
    "float32": FLOAT32,
    "float32_exact": Precision(product=lax.Precision.HIGHEST),
    "tf32": Precision(product=lax.Precision.HIGH, mantissa_bits=TF32_MANTISSA_BITS),
    "bfloat16": Precision("bfloat16", "bfloat16", "bfloat16"),
}
"""By ``model.compute_dtype``. ``float32`` products use the default of the device: TF32 on an NVIDIA
GPU, one bfloat16 pass on a TPU. The other three round operands alike on every device, except in
recurrent attention: its products with a vector and its location features take unrounded operands,
which ``bfloat16`` multiplies by the default of the device."""

POLICIES_ON_CPU: Mapping[str, Precision] = {name: policy.float32_output for name, policy in POLICIES.items()}
"""Results are float32: a CPU converts bfloat16 for every sum (14 % of a step of width 128)."""

EVALUATION_ON_CPU: Mapping[str, Precision] = {**POLICIES_ON_CPU, "bfloat16": Precision(output_layer_compute="bfloat16")}
"""Decoding and evaluation loss of a Transformer on a CPU: only the output layer is rounded, since
products of few rows are not faster in bfloat16."""


def einsum(subscripts: str, left: Array, right: Array, precision: Precision = FLOAT32) -> Array:
    """Return the einsum of rounded operands, with float32 sums, in the ``output`` type.

    Cotangents are rounded too, so that both products of the backward pass run in the ``compute``
    type. A gradient has the type of its operand. Every letter of an operand must occur in the other
    operand or in the output.
    """
    return _einsum(subscripts, precision, (str(left.dtype), str(right.dtype)), left, right)


def biased_einsum(subscripts: str, left: Array, right: Array, bias: Array, precision: Precision = FLOAT32) -> Array:
    """Return ``einsum`` plus the broadcast ``bias``, added in float32, then rounded."""
    product = einsum(subscripts, left, right, precision.float32_output)
    return (product + jnp.broadcast_to(bias, product.shape)).astype(precision.output)


def add_bias(product: Array, bias: Array) -> Array:
    """Return ``product`` plus the broadcast ``bias``; the sum and its gradient are float32."""
    return (product.astype(jnp.float32) + jnp.broadcast_to(bias, product.shape)).astype(product.dtype)


def rounding_barrier(array: Array) -> Array:
    """Return an array of less than float32, and its gradient, behind an optimization barrier.

    Without it the compiler may store or recompute the float32 array that was rounded.
    """
    return array if array.dtype == jnp.float32 else lax.optimization_barrier(array)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _einsum(subscripts: str, precision: Precision, dtypes: tuple[str, str], left: Array, right: Array) -> Array:
    return _einsum_forward(subscripts, precision, dtypes, left, right)[0]


def _einsum_forward(
    subscripts: str, precision: Precision, dtypes: tuple[str, str], left: Array, right: Array
) -> tuple[Array, tuple[Array, Array]]:
    del dtypes
    left, right = precision.rounded(left), precision.rounded(right)
    return _native_einsum(subscripts, left, right, precision.output, precision.product), (left, right)


def einsum_gradients(
    subscripts: str, precision: Precision, dtypes: tuple[str, str], operands: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array]:
    """Return the gradients, in ``dtypes``, of the rounded operands of an ``einsum``."""
    left, right = operands
    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    # Computed once for both products, by the kernel that also sums it for a bias.
    cotangent = precision.rounded(rounding_barrier(cotangent))
    to_left = _native_einsum(
        f"{output},{right_letters}->{left_letters}", cotangent, right, dtypes[0], precision.product
    )
    if left.dtype == jnp.float32 and precision.merges_positions:
        return to_left, _merged_gradient(left_letters, right_letters, output, left, cotangent, precision).astype(
            dtypes[1]
        )
    to_right = _native_einsum(
        f"{output},{left_letters}->{right_letters}", cotangent, left, dtypes[1], precision.product
    )
    return to_left, to_right


def _merged_gradient(
    left_letters: str, right_letters: str, output: str, left: Array, cotangent: Array, precision: Precision
) -> Array:
    """Return the gradient of the right operand, with summed leading axes merged into one.

    With several such axes XLA's CPU backend would first copy an operand transposed. For bfloat16 it
    lacks this order.
    """
    # The CPU backend transposes the first operand, so the smaller one comes first. The small result
    # is transposed afterwards.
    factors = sorted([(left_letters, left), (output, cotangent)], key=lambda factor: factor[1].size)
    (first_letters, first), (second_letters, second) = factors
    natural = "".join(letter for letter in dict.fromkeys(first_letters + second_letters) if letter in right_letters)
    summed = "".join(letter for letter in first_letters if letter not in natural)
    is_merged = set(first_letters) & set(second_letters) == set(summed)
    if is_merged and first_letters.startswith(summed) and second_letters.startswith(summed):
        shapes = [array.shape[len(summed) :] for array in (first, second)]
        rows = [array.reshape(-1, math.prod(shape)) for array, shape in zip((first, second), shapes, strict=True)]
        gradient = jnp.einsum("Nx,Ny->xy", *rows, precision=precision.product).reshape(shapes[0] + shapes[1])
    else:
        subscripts = f"{first_letters},{second_letters}->{natural}"
        gradient = jnp.einsum(subscripts, first, second, precision=precision.product)
    if natural != right_letters and gradient.size < first.size:
        # Otherwise the compiler would transpose inside the product, in a slower kernel on CPUs.
        gradient = lax.optimization_barrier(gradient)
    return jnp.einsum(f"{natural}->{right_letters}", gradient)


_einsum.defvjp(_einsum_forward, einsum_gradients)


@partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _plain_einsum(subscripts: str, output: str, product: lax.Precision | None, left: Array, right: Array) -> Array:
    """Call ``jnp.einsum``, traced once for operands of the same shapes in all layers."""
    return jnp.einsum(subscripts, left, right, precision=product, preferred_element_type=output)


def _native_einsum(subscripts: str, left: Array, right: Array, output: str, product: lax.Precision | None) -> Array:
    """Return the einsum of rounded operands with float32 sums, rounded to ``output``."""
    inputs, result = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    is_batched = bool(set(left_letters) & set(right_letters) & set(result))
    native = partial(_plain_einsum, subscripts, output, product)
    if left.dtype == jnp.float32 or not is_batched:
        return native(left, right)

    def widened(left: Array, right: Array) -> Array:
        return jnp.einsum(subscripts, left.astype(jnp.float32), right.astype(jnp.float32)).astype(output)

    # XLA's CPU backend has no batched product of bfloat16 with a float32 result.
    return lax.platform_dependent(left, right, cpu=widened, default=native)
