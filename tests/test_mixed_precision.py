"""The one matrix product: precision forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.mixed_precision import contract

CASES = [
    ("BLD,DF->BLF", (2, 3, 4), (4, 5)),
    ("BQHK,BMHK->BHQM", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("BLD,VD->BLV", (2, 3, 4), (6, 4)),
]


def operands(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    return jax.random.normal(jax.random.key(0), left), jax.random.normal(jax.random.key(1), right)


@pytest.mark.parametrize(("subscripts", "left", "right"), CASES)
def test_bfloat16_rounds_operands_and_nothing_else(subscripts, left, right):
    left, right = operands(left, right)
    rounded = [array.astype(jnp.bfloat16).astype(jnp.float32) for array in (left, right)]
    product = contract(subscripts, left, right, "bfloat16")
    assert product.dtype == jnp.float32
    np.testing.assert_allclose(product, jnp.einsum(subscripts, *rounded), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("subscripts", "left", "right"), CASES)
def test_gradients_are_float32_and_close_to_exact_ones(subscripts, left, right):
    left, right = operands(left, right)

    def loss(left: jax.Array, right: jax.Array, dtype: str) -> jax.Array:
        return jnp.sum(jnp.sin(contract(subscripts, left, right, dtype)))

    exact = jax.grad(loss, argnums=(0, 1))(left, right, "float32")
    rounded = jax.grad(loss, argnums=(0, 1))(left, right, "bfloat16")
    for expected, found in zip(exact, rounded, strict=True):
        assert found.dtype == jnp.float32
        assert float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected)) < 2e-2


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
def test_gradients_in_float32_are_those_of_the_einsum(subscripts, left, right):
    left, right = operands(left, right)
    found, expected = (
        jax.grad(lambda *operands, product=product: jnp.sum(jnp.sin(product(subscripts, *operands))), argnums=(0, 1))(
            left, right
        )
        for product in (contract, jnp.einsum)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_the_backward_products_have_bfloat16_operands():
    def loss(left: jax.Array, right: jax.Array) -> jax.Array:
        return jnp.sum(contract("BD,DF->BF", left, right, "bfloat16") ** 2)

    jaxpr = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(*operands((2, 4), (4, 5)))
    products = [equation for equation in all_equations(jaxpr.jaxpr) if equation.primitive.name == "dot_general"]
    assert len(products) == 3
    for product in products:
        assert [operand.aval.dtype for operand in product.invars] == [jnp.bfloat16, jnp.bfloat16]
        assert product.outvars[0].aval.dtype == jnp.float32


def all_equations(jaxpr) -> list:
    """Equations of a jaxpr and of those inside it."""
    values = [value for equation in jaxpr.eqns for value in equation.params.values()]
    inner = [getattr(value, "jaxpr", value) for value in values]
    inner = [getattr(value, "jaxpr", value) for value in inner]
    return [*jaxpr.eqns, *(each for child in inner if hasattr(child, "eqns") for each in all_equations(child))]
