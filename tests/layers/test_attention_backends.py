"""Every way to compute attention gives what the reference gives, forward and backward."""

import math
import re
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.cudnn import fused_attention_stablehlo
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jax.tree_util import Partial

from transformer_jax.kit.sink import rectified
from transformer_jax.layers.attention import ByLength
from transformer_jax.layers.attention_backends import (
    CudnnAttention,
    EinsumAttention,
    PackedCudnnAttention,
    RowBlockAttention,
    TpuFlashAttention,
    blockwise_instead,
)
from transformer_jax.layers.blockwise_attention import Blocks, BlockwiseAttention
from transformer_jax.layers.dropout import dropout_mask
from transformer_jax.layers.masks import SentenceMask, Window
from transformer_jax.layers.scaled_dot_product import AttentionOptions, Denominator, modified_attention
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


def inputs(mask: SentenceMask, value_size: int = VALUE_SIZE) -> tuple[jax.Array, jax.Array, jax.Array]:
    sizes = (mask.query_segments, KEY_SIZE), (mask.key_segments, KEY_SIZE), (mask.key_segments, value_size)
    return tuple(
        random(ROWS, HEADS, side.shape[1], size, seed=seed, scale=2.0) for seed, (side, size) in enumerate(sizes)
    )


def random(*shape: int, seed: int | None = None, scale: float = 1.0) -> jax.Array:
    generator = np.random.default_rng(sum(shape) if seed is None else seed)
    return jnp.asarray(generator.normal(scale=scale, size=shape), jnp.float32)


def output_and_gradients(backend, mask, arrays, dropout=None, precision=FLOAT32, score_mod=None, denominator=None):
    """Of the queries that are tokens: what the others get is up to the backend."""
    is_token = (mask.query_segments != 0)[:, None, :, None]
    direction = random(*arrays[0].shape[:3], arrays[2].shape[-1])

    def value(arrays, changes):
        heads = backend(*arrays, mask, AttentionOptions(dropout, precision, *changes))
        heads = jnp.where(is_token, heads, 0.0)
        return jnp.sum(heads * direction), heads

    gradient, changes = jax.grad(value, argnums=(0, 1), has_aux=True, allow_int=True), (score_mod, denominator)
    gradients, heads = jax.jit(gradient)(tuple(arrays), changes)
    return [leaf for leaf in jax.tree.leaves(gradients) if leaf.dtype != jax.dtypes.float0], heads


def assert_equal(actual, expected, tolerance):
    (found_gradients, found_heads), (gradients, heads) = actual, expected
    for one, other in zip((found_heads, *found_gradients), (heads, *gradients), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, atol=tolerance * np.abs(other).max())


@cache
def reference(name: str, dropout_rate: float = 0.0):
    mask, dropout = MASKS[name], dropout_mask(dropout_rate, jax.random.key(2)) if dropout_rate else None
    return output_and_gradients(EinsumAttention(), mask, inputs(mask), dropout)


@pytest.mark.parametrize(("name", "blocks"), [("packed and causal", (64, 64)), ("to packed sources", (4, 3))])
def test_blockwise(name, blocks):
    mask = MASKS[name]
    assert_equal(output_and_gradients(BlockwiseAttention(*blocks), mask, inputs(mask)), reference(name), 1e-5)


def test_a_query_that_sees_nothing_gets_zeros():
    mask = SentenceMask(segments([1, 0]), segments([1, 1, 0]))
    arrays = [jnp.ones((1, 1, size, 4)) for size in (2, 3, 3)]
    heads = jax.jit(lambda *arrays: BlockwiseAttention(2, 2)(*arrays, mask, AttentionOptions(None, FLOAT32)))(*arrays)
    np.testing.assert_array_equal(heads[0, 0, 1], 0)


def row_blocks(scores: int, shape: tuple[int, int] = (1, 1)) -> RowBlockAttention:
    devices = jax.devices()[: math.prod(shape)]
    mesh = jax.make_mesh(shape, ("data", "tensor"), axis_types=(AxisType.Auto,) * 2, devices=devices)
    return RowBlockAttention(mesh, P("data", "tensor"), scores)


@pytest.mark.parametrize("backend", [BlockwiseAttention(4, 3), row_blocks(scores=1)], ids=["blockwise", "row blocks"])
def test_dropped_weights_are_those_of_the_reference(backend):
    mask, drops = MASKS["to packed sources"], dropout_mask(0.4, jax.random.key(2))
    expected = reference("to packed sources", 0.4)
    assert_equal(output_and_gradients(backend, mask, inputs(mask), drops), expected, 1e-5)
    assert not np.allclose(expected[1], reference("to packed sources")[1])


def test_blocks_of_rows_keep_no_scores_of_the_batch():
    mask = MASKS["causal"]

    def program(backend) -> str:
        return str(jax.make_jaxpr(lambda *arrays: output_and_gradients(backend, mask, arrays))(*inputs(mask)))

    of_the_batch = f"{ROWS},{HEADS},11,11]"
    assert of_the_batch in program(EinsumAttention())
    assert of_the_batch not in program(row_blocks(scores=1))


def add_slopes(slopes_H, scores, at):
    return scores + slopes_H[None, :, None, None] * at.distance[:, None]


def add_from_table(table_HN, farthest, scores, at):
    bias_HBQM = table_HN[:, jnp.clip(at.distance, -farthest, farthest) + farthest]
    return scores + jnp.swapaxes(bias_HBQM, 0, 1)


def soft_cap(cap, scores, at):
    return cap * jnp.tanh(scores / cap)


def add_relative_keys(vectors_NK, scores, at):
    """Shaw et al. 2018, equation 5."""
    terms_BHQN = jnp.einsum("BHQK,NK->BHQN", at.query, vectors_NK)
    return scores + jnp.take_along_axis(terms_BHQN, jnp.clip(at.distance, -2, 2)[:, None] + 2, axis=-1)


def in_order(*mods_scores_at):
    *mods, scores, at = mods_scores_at
    for mod in mods:
        scores = mod(scores, at)
    return scores


def odd_distance(query_positions, key_positions):
    return (key_positions[:, None, :] - query_positions[:, :, None]) % 2 == 1


H = 4
SCORE_MODS = {
    "slopes": Partial(add_slopes, random(H)),
    "table": Partial(add_from_table, random(H, 7), jnp.int32(3)),
    "soft cap": Partial(soft_cap, jnp.float32(1.5)),
    "relative keys": Partial(add_relative_keys, random(5, KEY_SIZE)),
}
# No biases, although the derivative by the scores is the identity and the one by the queries 0.
NO_BIASES = {
    "steps": Partial(lambda scores, at: scores + (scores > 0)),
    "constant in the queries": Partial(lambda scores, at: scores + lax.stop_gradient(at.query[..., :1])),
}
SCORE_MODS["all"] = Partial(in_order, *SCORE_MODS.values())
# The last row is padding. Positions count from 0 in each sentence, or from another number.
PACKED_AND_EMPTY = sentences(11, (3, 7, 11), (5, 9), (0,))
STARTS = jnp.array([[0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7], [0] * 5 + [5] * 4 + [9] * 2, [0] * 11])
CAUSAL = SentenceMask(PACKED_AND_EMPTY, PACKED_AND_EMPTY, is_causal=True)
POSITIONS = jnp.arange(11)[None, :] - STARTS
COUNTED = replace(CAUSAL, query_positions=POSITIONS, key_positions=POSITIONS + 1)
CROSS = SentenceMask(PACKED_AND_EMPTY, sentences(7, (2, 5, 7), (1, 6), (0,)))
SCORE_MODS |= NO_BIASES
DENOMINATORS = {
    "sink": Denominator(random(H)),
    "softpick": Denominator(jnp.full(H, jnp.log(1e-8)), Partial(rectified)),
    "squares": Denominator(
        random(H), Partial(lambda scale, scores, shift: 2 * [scale * jnp.exp(2 * scores - shift)], 0.3)
    ),
}
VARIANTS = {
    "function of positions": (replace(COUNTED, mask_mod=odd_distance), None, H, False, None),
    "one key head": (CROSS, "all", 1, False, None),
    "everything": (replace(COUNTED, mask_mod=Window(4, 2)), "all", 2, True, "sink"),
    "softpick": (CROSS, None, 2, True, "softpick"),
    "other terms": (replace(COUNTED, mask_mod=odd_distance), "soft cap", 1, True, "squares"),
}


# By "everything" and "other terms".
COVERED = "function of positions", "one key head"


def variant(name: str, value_size: int = VALUE_SIZE) -> dict:
    mask, score_mod, key_heads, has_dropout, denominator = VARIANTS[name]
    keys, queries = mask.key_segments.shape, mask.query_segments.shape
    # Values have one head.
    shapes = (H, queries[1], KEY_SIZE), (key_heads, keys[1], KEY_SIZE), (1, keys[1], value_size)
    return {
        "mask": mask,
        "arrays": [random(keys[0], *shape, scale=2.0) for shape in shapes],
        "dropout": dropout_mask(0.4, jax.random.key(2)) if has_dropout else None,
        "score_mod": SCORE_MODS.get(score_mod),
        "denominator": DENOMINATORS.get(denominator),
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in COVERED)) for name in VARIANTS]
)
def test_blockwise_with_other_scores_masks_and_heads(name):
    result = output_and_gradients(BlockwiseAttention(4, 3), **variant(name))
    assert_equal(result, output_and_gradients(EinsumAttention(), **variant(name)), 1e-5)


def test_the_reference_with_other_scores_masks_and_heads():
    """In numpy, head by head."""
    of = variant("everything")
    options, positions = AttentionOptions(None, FLOAT32, SCORE_MODS["slopes"], of["denominator"]), of["mask"].positions
    attend = jax.jit(partial(modified_attention, options=options, positions=positions))
    heads, weights = attend(*of["arrays"], of["mask"].array())
    q, k, v = map(np.asarray, of["arrays"])
    order, segments = np.arange(11), np.asarray(PACKED_AND_EMPTY)
    distance = order[None, :] - order[:, None]
    for row, head in ((0, 0), (0, 3), (1, 2)):
        # Keys are counted from 1.
        scores = q[row, head] @ k[row, head // 2].T / np.sqrt(KEY_SIZE)
        scores = scores + np.asarray(SCORE_MODS["slopes"].args[0])[head] * (distance + 1)
        same = segments[row][:, None] == segments[row][None, :]
        visible = same & (segments[row] != 0) & (distance <= 0) & (distance >= -4)
        expected = np.exp(scores) * visible
        expected = expected / (np.exp(np.asarray(of["denominator"].log_rest)[head]) + expected.sum(-1, keepdims=True))
        is_token = segments[row] != 0
        np.testing.assert_allclose(weights[row, head][is_token], expected[is_token], atol=1e-5)
        np.testing.assert_allclose(heads[row, head][is_token], (expected @ v[row, 0])[is_token], atol=1e-4)


def test_blocks_of_rows_over_a_mesh():
    of = variant("everything") | {"dropout": None}
    result = output_and_gradients(row_blocks(2 * H * 11 * 11, (1, 2)), **of)
    assert_equal(result, output_and_gradients(EinsumAttention(), **of), 1e-5)


def test_blocks_outside_of_a_window_are_skipped():
    segments = jnp.ones((1, 12), int)
    q = jnp.ones((1, 1, 12, 4))
    v = q.at[:, :, 6:].set(jnp.nan)
    mask = SentenceMask(segments, segments, mask_mod=Window(2, 1))
    heads = jax.jit(lambda q, v: BlockwiseAttention(2, 2)(q, q, v, mask, AttentionOptions(None, FLOAT32)))(q, v)
    assert np.isfinite(heads[:, :, :4]).all() and np.isnan(heads[:, :, 4:6]).all()
    blocks = Blocks(4, 3, 12, 12, mask.window, False, None, FLOAT32)
    keys = [[int(end) for end in blocks.key_blocks_of(jnp.int32(row), 4)] for row in range(3)]
    queries = [[int(end) for end in blocks.query_blocks_of(jnp.int32(column), 3)] for column in range(4)]
    assert keys == [[0, 2], [0, 3], [2, 4]]
    assert queries == [[0, 2], [0, 2], [1, 3], [2, 3]]


@pytest.mark.slow
def test_memory_of_biased_scores_is_that_of_plain_blockwise_attention():
    """Forward and gradient, compiled; scores of all positions would take ten times as much."""

    def temporaries(score_mod):
        def loss(q, k, v, segments, score_mod):
            mask = SentenceMask(segments, segments, is_causal=True)
            return jnp.sum(BlockwiseAttention()(q, k, v, mask, AttentionOptions(None, FLOAT32, score_mod)) ** 2)

        array, segments = (
            jax.ShapeDtypeStruct(*item) for item in (((1, H, 2048, 32), "float32"), ((1, 2048), "int32"))
        )
        program = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(array, array, array, segments, score_mod).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert temporaries(SCORE_MODS["slopes"]) <= 1.2 * temporaries(None)


@pytest.mark.parametrize(
    ("window", "is_causal", "score_mod"),
    [(Window(2, 5), True, None), (None, True, "slopes"), pytest.param(None, False, "table", marks=pytest.mark.slow)],
)
def test_cudnn_is_asked_for_windows_biases_and_shared_key_heads_as_the_reference_has_them(
    window, is_causal, score_mod, monkeypatch
):
    """Computed by JAX's own implementation of what cuDNN is asked for."""
    attend = jax.nn.dot_product_attention
    monkeypatch.setattr(
        jax.nn, "dot_product_attention", lambda *args, **options: attend(*args, **options | {"implementation": "xla"})
    )
    sides = sentences(12, (12,), (4,))
    mask = SentenceMask(sides, sides, is_causal=is_causal, mask_mod=window)
    options = {"precision": POLICIES["bfloat16"], "score_mod": SCORE_MODS.get(score_mod)}
    arrays = [random(ROWS, heads, 12, KEY_SIZE) for heads in (H, 2, 2)]
    expected = output_and_gradients(EinsumAttention(), mask, arrays, **options)
    actual = output_and_gradients(CudnnAttention(one_sentence=True), mask, arrays, **options)
    assert_equal(actual, expected, 0.03)


def test_cudnn_gets_a_bias_for_all_rows_and_returns_its_gradient(monkeypatch):
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91002)
    sides, arrays = sentences(12, (12,), (4,)), [random(ROWS, heads, 12, KEY_SIZE) for heads in (H, 2, 2)]

    def loss(score_mod):
        options = AttentionOptions(None, POLICIES["bfloat16"], score_mod)
        return jnp.sum(CudnnAttention(one_sentence=True)(*arrays, SentenceMask(sides, sides, is_causal=True), options))

    gradient = jax.jit(jax.grad(loss, allow_int=True)).trace(SCORE_MODS["table"])
    program = gradient.lower(lowering_platforms=("cuda",)).as_text()
    calls = re.findall(r"custom_call @__cudnn\$(\w+)\(.* : \((.*)\) -> \((.*)\)", program)
    assert [name for name, _, _ in calls] == ["fmhaScaleBiasSoftmax", "fmhaScaleBiasSoftmaxBackward"]
    bias = f"tensor<1x{H}x12x12xbf16>"
    assert [(bias in operands, bias in results) for _, operands, results in calls] == [(True, False), (True, True)]
    assert program.count("PADDING_CAUSAL") == 2


OTHER_SCORES = "change of scores (score_mod) except a bias that is the same in all rows of one sentence"


@pytest.mark.parametrize(
    ("one_sentence", "score_mod", "window", "reason"),
    [
        (True, "sink", None, "change of the denominator (denominator_mod)"),
        (False, "slopes", None, OTHER_SCORES),
        (True, "soft cap", None, OTHER_SCORES),
        *((True, name, None, OTHER_SCORES) for name in NO_BIASES),
        (True, "relative keys", None, OTHER_SCORES),
        (True, "slopes", Window(3, 0), "window with a bias"),
        (True, "slopes", None, "bias or mask of an odd length"),
    ],
)
def test_cudnn_leaves_what_it_cannot_take_to_blockwise_and_says_so_once(
    one_sentence, score_mod, window, reason, caplog
):
    blockwise_instead.cache_clear()
    mask = replace(MASKS["causal"], mask_mod=window)
    changes = SCORE_MODS.get(score_mod), DENOMINATORS.get(score_mod)
    options, array = AttentionOptions(None, FLOAT32, *changes), random(ROWS, H, 11, KEY_SIZE)
    attend = partial(CudnnAttention(one_sentence), mask=mask, options=options)
    with caplog.at_level("INFO", "transformer_jax"):
        programs = [str(jax.make_jaxpr(lambda *arrays: attend(*arrays))(*[array] * 3)) for _ in range(2)]
    assert all("scan" in program for program in programs)
    assert caplog.messages == [f"attention: blockwise instead of cudnn, which takes no {reason}"]


@pytest.mark.parametrize(("limit", "is_blockwise"), [(77, False), (76, True)])
def test_length_decides(limit, is_blockwise):
    mask = MASKS["to the source"]
    attend = partial(ByLength(limit=limit), mask=mask, options=AttentionOptions(None, FLOAT32))
    assert ("scan" in str(jax.make_jaxpr(attend)(*inputs(mask)))) == is_blockwise


LONG = sentences(300, (40, 90, 300), (30, 150))


KERNEL_MASKS = {
    "causal": SentenceMask(LONG, LONG, is_causal=True),
    "to the source": SentenceMask(PACKED, LONG),
    "window": SentenceMask(LONG, LONG, mask_mod=Window(20, 130)),
}


@pytest.mark.parametrize(
    "name", ["window", *(pytest.param(name, marks=pytest.mark.slow) for name in ("causal", "to the source"))]
)
def test_the_kernel_for_tpus_in_its_interpreter(name, monkeypatch):
    monkeypatch.setattr(splash, "make_splash_mha", partial(splash.make_splash_mha, interpret=True))
    mesh = jax.make_mesh((1, 2), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:2])
    mask, key_heads = KERNEL_MASKS[name], 2 if "window" in name else H
    lengths = mask.query_segments.shape[1], *[mask.key_segments.shape[1]] * 2
    heads = H, key_heads, key_heads
    arrays = [random(ROWS, head, length, KEY_SIZE) for head, length in zip(heads, lengths, strict=True)]
    denominator = DENOMINATORS["sink"] if name == "window" else None
    flash = TpuFlashAttention(mesh, P("data", "tensor"), block=128)
    result = output_and_gradients(flash, mask, arrays, denominator=denominator)
    assert_equal(result, output_and_gradients(EinsumAttention(), mask, arrays, denominator=denominator), 1e-3)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs an NVIDIA GPU: JAX_PLATFORMS=cuda")
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_cudnn(name, is_packed):
    mesh = jax.make_mesh((1, 1), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:1])
    backend = PackedCudnnAttention(mesh, P("data", "tensor")) if is_packed else CudnnAttention()
    arrays = inputs(MASKS[name], value_size=KEY_SIZE)
    expected = output_and_gradients(EinsumAttention(), MASKS[name], arrays, precision=POLICIES["bfloat16"])
    actual = output_and_gradients(backend, MASKS[name], arrays, precision=POLICIES["bfloat16"])
    assert_equal(actual, expected, 0.03)
