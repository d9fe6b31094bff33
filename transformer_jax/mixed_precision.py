"""The one matrix product of the package, and the one place that decides its precision."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array

TF32_FRACTION = 10
"""Bits of the fraction of NVIDIA's TensorFloat-32, whose exponents are those of float32."""


@dataclass(frozen=True)
class Precision:
    """Types of a model's arithmetic (mixed precision as in Micikevicius et al. 2018, section 3).

    ``compute``: operands of the matrix products, forward and backward; ``output``: their results, which are the hidden states
    between them; ``logits``: those of a training loss. Parameters, gradients of parameters, moments, residual sums, statistics
    of norms, softmax, losses and the sums inside products are float32 under every policy. ``product`` is the algorithm of
    products of float32; operands keep ``fraction`` bits of their fraction, all where it is None. Backward passes make one axis
    of rows and positions if ``merges_positions``, for a CPU's sake; they cannot where both are split over devices.
    """

    compute: str = "float32"
    output: str = "float32"
    logits: str = "float32"
    product: lax.Precision | None = None
    fraction: int | None = None
    merges_positions: bool = True

    @property
    def wide(self) -> "Precision":
        """The same with results in float32: for scores, gates, and the logits of decoding and validation."""
        return replace(self, output="float32", logits="float32")

    @property
    def of_logits(self) -> "Precision":
        """The same with results in the type of the loss's logits."""
        return replace(self, output=self.logits)

    def rounded(self, array: Array) -> Array:
        """``array`` as an operand of a product."""
        array = array.astype(self.compute)
        return array if self.fraction is None else lax.reduce_precision(array, 8, self.fraction)


FLOAT32 = Precision()
POLICIES: Mapping[str, Precision] = {
    "float32": FLOAT32,
    "float32_exact": Precision(product=lax.Precision.HIGHEST),
    "tf32": Precision(product=lax.Precision.HIGH, fraction=TF32_FRACTION),
    "bfloat16": Precision("bfloat16", "bfloat16", "bfloat16"),
}
"""By ``model.compute_dtype``. ``float32`` is what the device takes for it: TF32 on an NVIDIA GPU, one pass of bfloat16 on a
TPU; the operands of the other three are the same on every device."""

POLICIES_ON_CPU: Mapping[str, Precision] = {name: policy.wide for name, policy in POLICIES.items()}
"""Everything between products is float32: a CPU converts bfloat16 for every sum (a training step of width 128: 14 % slower)."""


def contract(subscripts: str, left: Array, right: Array, precision: Precision = FLOAT32) -> Array:
    """Einsum of two arrays whose operands are rounded as ``precision`` says, summed in float32 and returned in its ``output``.

    The cotangents are rounded too: otherwise both products of the backward pass would silently run in float32. A gradient has
    the type of its operand.

    Every letter of an operand must occur in the other operand or in the output, as in every projection and attention.
    """
    return _contract(subscripts, precision, (str(left.dtype), str(right.dtype)), left, right)


def biased_contract(subscripts: str, left: Array, right: Array, bias: Array, precision: Precision = FLOAT32) -> Array:
    """``contract`` plus ``bias``, broadcast to it, in float32, then rounded to ``precision.output``."""
    product = contract(subscripts, left, right, precision.wide)
    return (product + jnp.broadcast_to(bias, product.shape)).astype(precision.output)


def biased(product: Array, bias: Array) -> Array:
    """``product`` plus ``bias``, broadcast to it: added, and the gradient of ``bias`` summed, in float32."""
    return (product.astype(jnp.float32) + jnp.broadcast_to(bias, product.shape)).astype(product.dtype)


def in_memory(array: Array) -> Array:
    """``array``, written down as it is, and so its gradient.

    A compiler may keep, or compute again, the float32 array from which one of bfloat16 was rounded, and write and read that.
    """
    return array if array.dtype == jnp.float32 else lax.optimization_barrier(array)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _contract(subscripts: str, precision: Precision, dtypes: tuple[str, str], left: Array, right: Array) -> Array:
    return _forward(subscripts, precision, dtypes, left, right)[0]


def _forward(
    subscripts: str, precision: Precision, dtypes: tuple[str, str], left: Array, right: Array
) -> tuple[Array, tuple[Array, Array]]:
    del dtypes
    left, right = precision.rounded(left), precision.rounded(right)
    return _einsum(subscripts, left, right, precision.output, precision.product), (left, right)


def contract_gradients(
    subscripts: str, precision: Precision, dtypes: tuple[str, str], operands: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array]:
    """Gradients of the operands of a ``contract``, in ``dtypes``, from the rounded operands and the gradient of its result."""
    left, right = operands
    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    cotangent = precision.rounded(cotangent)
    to_left = _einsum(f"{output},{right_letters}->{left_letters}", cotangent, right, dtypes[0], precision.product)
    return to_left, _gradient_of_right(subscripts, left, cotangent, dtypes[1], precision)


def _gradient_of_right(subscripts: str, left: Array, cotangent: Array, dtype: str, precision: Precision) -> Array:
    inputs, output = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    product = precision.product
    if left.dtype != jnp.float32 or not precision.merges_positions:
        return _einsum(f"{output},{left_letters}->{right_letters}", cotangent, left, dtype, product)
    # Written first, an operand is transposed inside the product, so the smaller one comes first, and the small result is turned
    # afterwards. (XLA's CPU backend lacks this order for bfloat16.)
    factors = [(left_letters, left), (output, cotangent)]
    (first_letters, first), (second_letters, second) = sorted(factors, key=lambda factor: factor[1].size)
    natural = "".join(letter for letter in dict.fromkeys(first_letters + second_letters) if letter in right_letters)
    gradient = _float32_einsum(first_letters, second_letters, natural, first, second, product)
    if natural != right_letters and gradient.size < first.size:
        # Otherwise the compiler makes the turn part of the product, for which its CPU backend has only a slower kernel.
        gradient = lax.optimization_barrier(gradient)
    return jnp.einsum(f"{natural}->{right_letters}", gradient).astype(dtype)


def _float32_einsum(
    first_letters: str, second_letters: str, output: str, first: Array, second: Array, product: lax.Precision | None
) -> Array:
    """Einsum of two arrays; where it sums over the letters that both begin with, these are one axis.

    Of several, the CPU backend would first make a transposed copy of an operand.
    """
    summed = "".join(letter for letter in first_letters if letter not in output)
    if set(first_letters) & set(second_letters) != set(summed) or not (
        first_letters.startswith(summed) and second_letters.startswith(summed)
    ):
        return jnp.einsum(f"{first_letters},{second_letters}->{output}", first, second, precision=product)
    shapes = [array.shape[len(summed) :] for array in (first, second)]
    rows = [array.reshape(-1, math.prod(shape)) for array, shape in zip((first, second), shapes, strict=True)]
    return jnp.einsum("Nx,Ny->xy", *rows, precision=product).reshape(shapes[0] + shapes[1])


_contract.defvjp(_forward, contract_gradients)


def _einsum(subscripts: str, left: Array, right: Array, output: str, product: lax.Precision | None) -> Array:
    """Einsum of operands of either precision with float32 sums, rounded to ``output``."""
    inputs, result = subscripts.split("->")
    left_letters, right_letters = inputs.split(",")
    is_batched = bool(set(left_letters) & set(right_letters) & set(result))
    native = partial(jnp.einsum, subscripts, precision=product, preferred_element_type=output)
    if left.dtype == jnp.float32 or not is_batched:
        return native(left, right)
    # XLA's CPU backend has no batched product of bfloat16 with a float32 result; the rounding of the operands is the same.
    return lax.platform_dependent(left, right, cpu=partial(_widened, subscripts, output), default=native)


def _widened(subscripts: str, output: str, left: Array, right: Array) -> Array:
    return jnp.einsum(subscripts, left.astype(jnp.float32), right.astype(jnp.float32)).astype(output)
