"""The one matrix product: precision forward and backward."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.precision import POLICIES, einsum

CASES = [
    ("BLD,DF->BLF", (2, 3, 4), (4, 5)),
    ("BQHK,BMHK->BHQM", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("BLD,VD->BLV", (2, 3, 4), (6, 4)),
]


def operands(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    generator = np.random.default_rng(0)
    return tuple(jnp.asarray(generator.normal(size=shape), jnp.float32) for shape in (left, right))


@pytest.mark.parametrize(("subscripts", "left", "right"), CASES)
def test_bfloat16_rounds_operands_and_the_result(subscripts, left, right):
    left, right = operands(left, right)
    rounded = [np.asarray(array).astype(jnp.bfloat16).astype(np.float32) for array in (left, right)]
    policies = POLICIES["bfloat16"].float32_output, POLICIES["bfloat16"]
    product, narrow = jax.jit(lambda *both: [einsum(subscripts, *both, each) for each in policies])(left, right)
    assert product.dtype == jnp.float32
    np.testing.assert_allclose(product, np.einsum(subscripts, *rounded), rtol=1e-5, atol=1e-5)
    assert narrow.dtype == jnp.bfloat16
    # One rounding, of 8 bits.
    np.testing.assert_allclose(narrow.astype(jnp.float32), product, rtol=2**-8)


def test_tf32_keeps_ten_bits_of_the_fraction_of_its_operands_everywhere():
    one, step = jnp.ones(1), 2.0**-10
    found = [einsum("B,B->B", one + part * step, one, POLICIES["tf32"])[0] for part in (1, 0.25)]
    assert [float(each) for each in found] == [1 + step, 1.0]
    assert float(einsum("B,B->B", one + 0.25 * step, one, POLICIES["float32_exact"])[0]) == 1 + 0.25 * step


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("float32_exact", jnp.float32, jax.lax.Precision.HIGHEST),
        ("tf32", jnp.float32, jax.lax.Precision.HIGH),
        ("bfloat16", jnp.bfloat16, None),
    ],
)
def test_products_have_the_operands_and_precision_of_the_policy_forward_and_backward(name, dtype, expected):
    def total(left: jax.Array, right: jax.Array) -> jax.Array:
        return (einsum("BD,DF->BF", left, right, POLICIES[name].float32_output) ** 2).sum()

    program = jax.make_jaxpr(jax.grad(total, argnums=(0, 1)))(*operands((2, 4), (4, 5)))
    products = [each for each in all_equations(program.jaxpr) if each.primitive.name == "dot_general"]
    assert len(products) == 3
    for product in products:
        assert {*(product.params["precision"] or (None,))} == {expected}
        assert [operand.aval.dtype for operand in product.invars] == [dtype, dtype]
        assert product.outvars[0].aval.dtype == jnp.float32


@pytest.mark.parametrize(
    ("subscripts", "left", "right"),
    [
        *CASES,
        ("BLD,DHK->BLHK", (2, 3, 4), (4, 5, 6)),
        ("BQHU,HUD->BQD", (2, 3, 4, 5), (4, 5, 6)),
        ("BHQM,BHMU->BHQU", (2, 3, 4, 5), (2, 3, 5, 6)),
        ("GND,GVD->GNV", (2, 3, 4), (2, 5, 4)),
        ("BD,DH->BH", (2, 3), (3, 4)),
        ("BLD,DF->LBF", (2, 3, 4), (4, 5)),
        ("BLD,DF->BFL", (2, 3, 4), (4, 5)),
        # The result smaller than what goes in.
        ("BLD,DF->BLF", (2, 3, 14), (14, 5)),
    ],
)
def test_gradients_are_those_of_the_einsum_and_float32(subscripts, left, right):
    left, right = operands(left, right)
    rounding = partial(einsum, precision=POLICIES["bfloat16"])

    def loss(product, *operands):
        return jnp.sum(jnp.sin(product(subscripts, *operands).astype(jnp.float32)))

    gradients = [jax.grad(partial(loss, product), argnums=(0, 1)) for product in (jnp.einsum, einsum, rounding)]
    for expected, exact, rounded in zip(
        *jax.jit(lambda *both: [each(*both) for each in gradients])(left, right), strict=True
    ):
        np.testing.assert_allclose(exact, expected, rtol=1e-5, atol=1e-5)
        assert rounded.dtype == jnp.float32
        assert np.linalg.norm(rounded - expected) / np.linalg.norm(expected) < 2e-2


def all_equations(jaxpr) -> list:
    """Equations of a jaxpr and of those inside it."""
    values = [value for equation in jaxpr.eqns for value in equation.params.values()]
    inner = [getattr(value, "jaxpr", value) for value in values]
    inner = [getattr(value, "jaxpr", value) for value in inner]
    return [*jaxpr.eqns, *(each for child in inner if hasattr(child, "eqns") for each in all_equations(child))]
