"""Every way to compute attention gives what the reference gives, forward and backward."""

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from transformer_jax.layers.attention_backends import (
    ByLength,
    CudnnAttention,
    EinsumAttention,
    RowBlockAttention,
    TpuFlashAttention,
)
from transformer_jax.layers.blockwise_attention import BlockwiseAttention
from transformer_jax.layers.dropout import dropout_mask
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.precision import FLOAT32, POLICIES

ROWS, HEADS, KEY_SIZE, VALUE_SIZE = 2, 2, 8, 6


def segments(*rows: list[int]) -> jax.Array:
    return jnp.array(rows, jnp.int32)


def sentences(length: int, *ends: tuple[int, ...]) -> jax.Array:
    """Packed rows: sentence after sentence up to each end, then padding."""

    def segment(place: int, row: tuple[int, ...]) -> int:
        return sum(place >= end for end in row) + 1 if place < row[-1] else 0

    return jnp.array([[segment(place, row) for place in range(length)] for row in ends])


PADDED = sentences(11, (11,), (4,))
PACKED = sentences(11, (3, 7, 11), (5, 9))
OTHERS = sentences(7, (2, 5, 7), (1, 6))
MASKS = {
    "padding": SentenceMask(PADDED, PADDED),
    "causal": SentenceMask(PADDED, PADDED, is_causal=True),
    "packed": SentenceMask(PACKED, PACKED),
    "packed and causal": SentenceMask(PACKED, PACKED, is_causal=True),
    "to the source": SentenceMask(PADDED, sentences(7, (7,), (2,))),
    "to packed sources": SentenceMask(PACKED, OTHERS),
}
BLOCKS = {"whole": (64, 64), "odd": (4, 3), "wide keys": (3, 5)}


def inputs(mask: SentenceMask, value_size: int = VALUE_SIZE) -> tuple[jax.Array, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = (mask.query_segments, KEY_SIZE), (mask.key_segments, KEY_SIZE), (mask.key_segments, value_size)
    return tuple(
        2 * jax.random.normal(key, (ROWS, HEADS, side.shape[1], size))
        for key, (side, size) in zip(keys, sizes, strict=True)
    )


def output_and_gradients(backend, mask, arrays, dropout=None, precision=FLOAT32):
    """Of the queries that are tokens: what the others get is up to the backend."""
    is_token = (mask.query_segments != 0)[:, None, :, None]
    direction = jax.random.normal(jax.random.key(1), (*arrays[0].shape[:3], arrays[2].shape[-1]))

    def value(*arrays):
        heads = jnp.where(is_token, backend(*arrays, mask, dropout=dropout, precision=precision), 0.0)
        return jnp.sum(heads * direction), heads

    return jax.jit(jax.grad(value, argnums=(0, 1, 2), has_aux=True))(*arrays)


def assert_equal(found, expected, tolerance):
    (found_gradients, found_heads), (gradients, heads) = found, expected
    for one, other in zip((found_heads, *found_gradients), (heads, *gradients), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, atol=tolerance * float(jnp.abs(other).max()))


@cache
def reference(name: str):
    return output_and_gradients(EinsumAttention(), MASKS[name], inputs(MASKS[name]))


@pytest.mark.parametrize(
    ("name", "blocks"), [*((name, "odd") for name in MASKS), *(("packed and causal", blocks) for blocks in BLOCKS)]
)
def test_blockwise(name, blocks):
    mask, backend = MASKS[name], BlockwiseAttention(*BLOCKS[blocks])
    assert_equal(output_and_gradients(backend, mask, inputs(mask)), reference(name), 1e-5)


@pytest.mark.parametrize("name", ["causal", "to packed sources"])
def test_blockwise_drops_what_the_reference_drops(name):
    mask, drops = MASKS[name], dropout_mask(0.4, jax.random.key(2))
    arrays = inputs(mask)
    expected = output_and_gradients(EinsumAttention(), mask, arrays, drops)
    assert_equal(output_and_gradients(BlockwiseAttention(4, 3), mask, arrays, drops), expected, 1e-5)
    assert not np.allclose(expected[1], output_and_gradients(EinsumAttention(), mask, arrays)[1])


def test_blockwise_in_bfloat16():
    """Weights are rounded before they are normalized, the reference's after: equal to that rounding (2^-8)."""
    mask = MASKS["packed and causal"]
    arrays = inputs(mask)
    expected = output_and_gradients(EinsumAttention(), mask, arrays, precision=POLICIES["bfloat16"])
    assert_equal(
        output_and_gradients(BlockwiseAttention(4, 3), mask, arrays, precision=POLICIES["bfloat16"]), expected, 0.03
    )


def test_a_query_that_sees_nothing_gets_zeros():
    mask = SentenceMask(segments([1, 0]), segments([1, 1, 0]))
    arrays = [jnp.ones((1, 1, size, 4)) for size in (2, 3, 3)]
    heads = BlockwiseAttention(2, 2)(*arrays, mask, dropout=None, precision=FLOAT32)
    np.testing.assert_array_equal(heads[0, 0, 1], 0)


def test_blockwise_over_a_mesh():
    mesh = jax.make_mesh((2, 2), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    mask = MASKS["packed and causal"]
    arrays = inputs(mask)
    split = [jax.device_put(array, jax.NamedSharding(mesh, jax.P("data", "tensor"))) for array in arrays]
    found = output_and_gradients(BlockwiseAttention(4, 4), mask, split)
    assert_equal(found, reference("packed and causal"), 1e-5)


def row_blocks(scores: int, shape: tuple[int, int] = (1, 1)) -> RowBlockAttention:
    devices = jax.devices()[: math.prod(shape)]
    mesh = jax.make_mesh(shape, ("data", "tensor"), axis_types=(AxisType.Auto,) * 2, devices=devices)
    return RowBlockAttention(mesh, P("data", "tensor"), scores)


@pytest.mark.parametrize(("name", "scores"), [("packed and causal", 1), ("to packed sources", 2 * 77)])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2)])
def test_blocks_of_rows_over_a_mesh(name, scores, shape):
    def with_third(rows):
        return jnp.concatenate([rows, rows[:1]])

    sides = with_third(MASKS[name].query_segments), with_third(MASKS[name].key_segments)
    mask, arrays = SentenceMask(*sides, MASKS[name].is_causal), [*map(with_third, inputs(MASKS[name]))]
    expected = output_and_gradients(EinsumAttention(), mask, arrays)
    assert_equal(output_and_gradients(row_blocks(scores, shape), mask, arrays), expected, 1e-5)


def test_blocks_of_rows_keep_no_scores_of_the_batch():
    mask = MASKS["causal"]

    def program(backend) -> str:
        return str(jax.make_jaxpr(lambda *arrays: output_and_gradients(backend, mask, arrays))(*inputs(mask)))

    of_the_batch = f"{ROWS},{HEADS},11,11]"
    assert of_the_batch in program(EinsumAttention())
    assert of_the_batch not in program(row_blocks(scores=1))


def test_dropped_weights_are_those_of_the_reference():
    mask, drops = MASKS["causal"], dropout_mask(0.4, jax.random.key(2))
    found = output_and_gradients(row_blocks(scores=1), mask, inputs(mask), drops)
    assert_equal(found, output_and_gradients(EinsumAttention(), mask, inputs(mask), drops), 1e-6)


@pytest.mark.parametrize(("limit", "is_blockwise"), [(77, False), (76, True)])
def test_length_decides(limit, is_blockwise):
    mask = MASKS["to the source"]
    attend = partial(ByLength(limit=limit), mask=mask, dropout=None, precision=FLOAT32)
    assert ("scan" in str(jax.make_jaxpr(attend)(*inputs(mask)))) == is_blockwise


LONG = sentences(300, (40, 90, 300), (30, 150))


@pytest.mark.parametrize("name", ["packed and causal", "several blocks", "several blocks to the source"])
def test_the_kernel_for_tpus_in_its_interpreter(name, monkeypatch):
    monkeypatch.setattr(splash, "make_splash_mha", partial(splash.make_splash_mha, interpret=True))
    several = {
        "several blocks": SentenceMask(LONG, LONG, is_causal=True),
        "several blocks to the source": SentenceMask(PACKED, LONG),
    }
    mask = (MASKS | several)[name]
    mesh = jax.make_mesh(
        (1, 2), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2, devices=jax.devices()[:2]
    )
    backend = TpuFlashAttention(mesh, P("data", "tensor"), block=128)
    arrays = inputs(mask, value_size=KEY_SIZE)
    found = output_and_gradients(backend, mask, arrays)
    assert_equal(found, output_and_gradients(EinsumAttention(), mask, arrays), 1e-3)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs an NVIDIA GPU: JAX_PLATFORMS=cuda")
@pytest.mark.parametrize("name", MASKS)
def test_cudnn(name):
    arrays = inputs(MASKS[name], value_size=KEY_SIZE)
    expected = output_and_gradients(EinsumAttention(), MASKS[name], arrays, precision=POLICIES["bfloat16"])
    found = output_and_gradients(CudnnAttention(), MASKS[name], arrays, precision=POLICIES["bfloat16"])
    assert_equal(found, expected, 0.03)
