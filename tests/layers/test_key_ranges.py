"""Packed rows in cuDNN's kernel: each query sees a range of keys, and no array has both axes."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from transformer_jax.layers import key_ranges as module
from transformer_jax.layers.attention_backends import EinsumAttention, PackedCudnnAttention
from transformer_jax.layers.key_ranges import attend_to_ranges, key_ranges
from transformer_jax.layers.masks import SentenceMask, Window
from transformer_jax.layers.scaled_dot_product import AttentionOptions
from transformer_jax.precision import FLOAT32, POLICIES

ROWS, HEADS, KEY_HEADS, KEY_SIZE = 4, 4, 2, 8


def packed(*rows: list[int], width: int) -> jax.Array:
    """Segments of these lengths, one after the other, and padding; a negative length is padding."""
    numbers = [
        [number * (length > 0) for number, length in enumerate(row, 1) for _ in range(abs(length))] for row in rows
    ]
    return jnp.array([number + [0] * (width - len(number)) for number in numbers], jnp.int32)


# Unequal segments, one without tokens on a side, a full row, padding on the left, a row of padding.
SOURCE = packed([3, 4, 6], [5, 0, 3], [-6, 7], [], width=13)
TARGET = packed([2, 3, 4], [4, 2, 1], [-2, 6], [-9], width=9)
MASKS = {
    "self": SentenceMask(SOURCE, SOURCE),
    "causal": SentenceMask(SOURCE, SOURCE, is_causal=True),
    "window": SentenceMask(SOURCE, SOURCE, mask_mod=Window(2, 1)),
    "causal window": SentenceMask(TARGET, TARGET, is_causal=True, mask_mod=Window(1, 5)),
    "to the source": SentenceMask(TARGET, SOURCE),
    "to fewer keys": SentenceMask(SOURCE, TARGET),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_range_has_the_visible_keys_and_the_first_key_where_none_is_visible(name):
    mask = MASKS[name]
    first, end = map(np.asarray, key_ranges(mask))
    keys = np.arange(mask.key_segments.shape[1])
    in_range = (keys >= first[..., None]) & (keys < end[..., None])
    visible = np.asarray(mask.array())
    sees_any = visible.any(-1)
    np.testing.assert_array_equal(in_range[sees_any], visible[sees_any])
    np.testing.assert_array_equal(in_range[~sees_any], np.broadcast_to(keys == 0, in_range[~sees_any].shape))


class Kernel(NamedTuple):
    """cuDNN's kernel on any device, with all scores; log normalizers connect both passes."""

    is_backward: bool

    def bind(self, query, key, value, *operands, scale, score_mod_jaxpr, is_training=True, **options):
        *of_backward, first, end = operands[7:]
        repeats = query.shape[2] // key.shape[2]
        wide_key, wide_value = (jnp.repeat(item, repeats, axis=2).astype(jnp.float32) for item in (key, value))
        scores = jnp.einsum("BQHK,BMHK->BHQM", query.astype(jnp.float32), wide_key) * scale
        change = jaxpr_as_fun(score_mod_jaxpr)
        if not self.is_backward:
            (changed,) = change(scores, first, end)
            heads = jnp.einsum("BHQM,BMHK->BQHK", jax.nn.softmax(changed), wide_value).astype(query.dtype)
            return [heads, jax.nn.logsumexp(changed, axis=-1)][: 1 + is_training]
        log_normalizers, heads, gradient = of_backward
        heads, gradient = heads.astype(jnp.float32), gradient.astype(jnp.float32)
        weights = jnp.exp(module.visible_scores(scores, first, end) - log_normalizers[..., None])
        of_weights = jnp.einsum("BQHK,BMHK->BHQM", gradient, wide_value)
        inner = jnp.einsum("BQHK,BQHK->BHQ", gradient, heads)
        (of_scores,) = change(weights * (of_weights - inner[..., None]), scores, first, end)
        to_query = jnp.einsum("BHQM,BMHK->BQHK", of_scores, wide_key) * scale
        to_key = jnp.einsum("BHQM,BQHK->BMHK", of_scores, query.astype(jnp.float32)) * scale
        to_value = jnp.einsum("BHQM,BQHK->BMHK", weights, gradient)
        summed = (item.reshape(*key.shape[:3], repeats, -1).sum(3) for item in (to_key, to_value))
        return [item.astype(query.dtype) for item in (to_query, *summed)]


@pytest.fixture
def emulated(monkeypatch):
    cudnn = module.cudnn_attention()
    monkeypatch.setattr(cudnn, "_dot_product_attention_fwd_p", Kernel(is_backward=False))
    monkeypatch.setattr(cudnn, "_dot_product_attention_bwd_p", Kernel(is_backward=True))


def inputs(mask: SentenceMask, rows: int = ROWS) -> list[jax.Array]:
    generator, (queries, keys) = np.random.default_rng(0), (mask.query_segments, mask.key_segments)
    shapes = [(HEADS, queries.shape[1]), *[(KEY_HEADS, keys.shape[1])] * 2]
    # As the kernel reads them, so that both sides have the same numbers.
    arrays = [jnp.asarray(generator.normal(size=(rows, *shape, KEY_SIZE)), jnp.bfloat16) for shape in shapes]
    return [array.astype(jnp.float32) for array in arrays]


def output_and_gradients(backend, mask: SentenceMask, arrays: list[jax.Array], precision=FLOAT32):
    # The others are up to the backend.
    sees_any = mask.array().any(-1)[:, None, :, None]

    def loss(arrays):
        heads = backend(*arrays, mask, AttentionOptions(None, precision)).astype(jnp.float32)
        heads = jnp.where(sees_any, heads, 0.0)
        return jnp.sum(jnp.sin(heads)), heads

    gradients, heads = jax.jit(jax.grad(loss, has_aux=True))(arrays)
    return heads, *gradients


def mesh_of(shape: tuple[int, int] = (1, 1)) -> jax.sharding.Mesh:
    devices = jax.devices()[: shape[0] * shape[1]]
    return jax.make_mesh(shape, ("data", "tensor"), axis_types=(AxisType.Auto,) * 2, devices=devices)


SLOW = "causal", "window", "to the source"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(pytest.param(name, (1, 1), marks=[pytest.mark.slow] * (name in SLOW)) for name in MASKS),
        ("to the source", (4, 2)),
    ],
)
def test_output_and_gradients_are_those_of_the_reference(name, shape, emulated):
    """On any device, with all scores: the ranges, the kernel's operands, and both functions."""
    mask, backend = MASKS[name], PackedCudnnAttention(mesh_of(shape), P("data", "tensor"))
    arrays = inputs(mask)
    actual = output_and_gradients(backend, mask, arrays, POLICIES["bfloat16"])
    expected = output_and_gradients(EinsumAttention(), mask, arrays)
    for one, other in zip(actual, expected, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, atol=0.02 * np.abs(other).max())


def test_devices_of_a_mesh_run_the_kernel_on_their_own_rows_and_heads():
    mask, backend = MASKS["to the source"], PackedCudnnAttention(mesh_of((4, 2)), P("data", "tensor"))

    def loss(arrays, queries, keys):
        options = AttentionOptions(None, POLICIES["bfloat16"])
        return jnp.sum(backend(*arrays, SentenceMask(queries, keys), options).astype(jnp.float32))

    arguments = inputs(mask), mask.query_segments, mask.key_segments
    program = jax.jit(jax.grad(loss)).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    operands = re.findall(r"custom_call @__cudnn\$\w+\(.*: \((tensor<[^>]*>)", program)
    assert set(operands) == {f"tensor<{ROWS // 4}x9x{HEADS // 2}x{KEY_SIZE}xbf16>"}
    assert "all_gather" not in program


def test_the_kernel_changes_its_scores_in_operations_that_xla_translates_and_nothing_else_has_both_axes():
    mask = MASKS["to the source"]

    def loss(q, k, v, queries, keys):
        ranges = key_ranges(SentenceMask(queries, keys))
        return jnp.sum(attend_to_ranges(q, k, v, *ranges).astype(jnp.float32) ** 2)

    arrays = [jnp.swapaxes(item, 1, 2).astype(jnp.bfloat16) for item in inputs(mask)]
    traced = jax.jit(jax.grad(loss, (0, 1, 2))).trace(*arrays, TARGET, SOURCE)
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    # The compiler merges the first two.
    assert re.findall(r"custom_call @__cudnn\$(\w+)", program) == [*["fmhaSoftmax"] * 2, "fmhaSoftmaxBackward"]
    functions = {item.split("(")[0]: item for item in re.split(r"func\.func \w+ @", program)[1:]}
    changes = [functions.pop(name) for name in set(re.findall(r"called_computations = \[@(\w+)\]", program))]
    assert len(changes) == 2
    for change in changes:
        used = set(re.findall(r"stablehlo\.(\w+)", change))
        assert used == {"iota", "broadcast_in_dim", "compare", "and", "constant", "select"}
        index = re.search(r"(%\w+) = stablehlo\.iota", change)[1]
        assert re.findall(r"compare +\w+, (%\w+),", change) == [index] * 2
    assert not re.search(r"<(\d+x)*9x13x", "".join(functions.values()))


@pytest.mark.parametrize("is_scanned", [False, True])
def test_the_backward_kernel_reads_the_normalizers_of_a_forward_kernel_beside_it(is_scanned):
    """XLA looks there for the function of the scores; a loop over layers has other results."""
    mask = MASKS["self"]
    query, key, value = (jnp.swapaxes(item, 1, 2).astype(jnp.bfloat16) for item in inputs(mask))

    def loss(query):
        def layer(hidden, _):
            return attend_to_ranges(hidden, key, value, *key_ranges(mask)), None

        hidden = jax.lax.scan(layer, query, length=3)[0] if is_scanned else layer(query, None)[0]
        return jnp.sum(hidden.astype(jnp.float32))

    program = jax.jit(jax.grad(loss)).trace(query).lower(lowering_platforms=("cuda",)).as_text()
    forward = re.findall(r"(%\w+):3 = stablehlo\.custom_call @__cudnn\$fmhaSoftmax\(", program)
    (operands,) = re.findall(r"custom_call @__cudnn\$fmhaSoftmaxBackward\((.*?)\)", program)
    assert operands.split(", ")[3] in [f"{item}#1" for item in forward]
