"""Attention over split sequences equals attention on one device, whatever computes it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from layers.test_attention_backends import (
    add_relative_keys,
    add_slopes,
    assert_equal,
    in_order,
    output_and_gradients,
    random,
    sentences,
)

from transformer_jax.config import MeshConfig
from transformer_jax.layers.attention_backends import (
    BY_HEAD,
    BY_POSITION,
    WHOLE_SEQUENCES,
    AllToAllAttention,
    EinsumAttention,
    RowBlockAttention,
)
from transformer_jax.layers.blockwise_attention import BlockwiseAttention
from transformer_jax.layers.dropout import dropout_mask
from transformer_jax.layers.masks import SentenceMask, Window
from transformer_jax.layers.mesh_axes import splits
from transformer_jax.training.sharding import make_mesh

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")
ROWS, HEADS, SIZE = 2, 8, 4
LONG = sentences(32, (9, 32), (5, 20))
SHORT = sentences(11, (3, 11), (8, 9))
MASKS = {
    "packed and causal": SentenceMask(LONG, LONG, is_causal=True),
    "to whole sources": SentenceMask(LONG, SHORT),
    "from whole targets": SentenceMask(SHORT, LONG),
}


def mesh_of(**sizes: int) -> jax.sharding.Mesh:
    return make_mesh(MeshConfig(**sizes), jax.devices()[: np.prod([*sizes.values()])])


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "einsum") for name in MASKS), *(("packed and causal", kind) for kind in ("blockwise", "row blocks"))],
)
def test_it_equals_attention_on_one_device(name, kind):
    mask, mesh = MASKS[name], mesh_of(data=1, fsdp=2, context=2, tensor=2)
    keys = jax.random.split(jax.random.key(0), 3)
    sides = (mask.query_segments, mask.key_segments, mask.key_segments)
    arrays = [jax.random.normal(key, (ROWS, HEADS, side.shape[1], SIZE)) for key, side in zip(keys, sides, strict=True)]
    backend = {
        "einsum": EinsumAttention(),
        "blockwise": BlockwiseAttention(8, 8),
        "row blocks": RowBlockAttention(mesh, BY_HEAD, 1),
    }[kind]
    drops = None if kind == "row blocks" else dropout_mask(0.3, jax.random.key(1))
    placed = [
        jax.device_put(array, jax.NamedSharding(mesh, BY_POSITION if splits(array.shape[2], mesh) else WHOLE_SEQUENCES))
        for array in arrays
    ]
    found = output_and_gradients(AllToAllAttention(backend, mesh), mask, placed, drops)
    assert_equal(found, output_and_gradients(EinsumAttention(), mask, arrays, drops), 1e-5)


@pytest.mark.parametrize("kind", ["einsum", "blockwise"])
def test_changes_of_scores_windows_and_shared_key_heads_over_devices(kind):
    """Two key heads for four devices that share the query heads."""
    mask = replace(MASKS["packed and causal"], mask_mod=Window(9, 0))
    mesh = mesh_of(data=2, context=2, tensor=2)
    score_mod = Partial(in_order, Partial(add_slopes, random(HEADS)), Partial(add_relative_keys, random(5, SIZE)))
    arrays = [random(ROWS, heads, 32, SIZE) for heads in (HEADS, 2, 2)]
    backend = {"einsum": EinsumAttention(), "blockwise": BlockwiseAttention(8, 8)}[kind]
    drops = dropout_mask(0.3, jax.random.key(1))
    placed = [jax.device_put(array, jax.NamedSharding(mesh, BY_POSITION)) for array in arrays]
    found = output_and_gradients(AllToAllAttention(backend, mesh), mask, placed, drops, score_mod=score_mod)
    assert_equal(found, output_and_gradients(EinsumAttention(), mask, arrays, drops, score_mod=score_mod), 1e-5)


def test_devices_exchange_heads_for_positions_and_gather_nothing():
    mask, mesh = MASKS["packed and causal"], mesh_of(data=2, context=4)
    backend = AllToAllAttention(EinsumAttention(), mesh)
    array = jax.ShapeDtypeStruct((ROWS, HEADS, 32, SIZE), jnp.float32, sharding=jax.NamedSharding(mesh, BY_POSITION))
    program = (
        jax.jit(lambda *arrays: output_and_gradients(backend, mask, arrays)).lower(*[array] * 3).compile().as_text()
    )
    # Query, key, value and output, and the gradient of each.
    assert program.count(" all-to-all(") == 8
    assert "all-gather" not in program


@pytest.mark.parametrize(
    ("length", "sizes", "expected"),
    [(32, {"context": 4}, True), (31, {"context": 4}, False), (24, {"context": 4}, False), (32, {"data": 4}, False)],
)
def test_long_sequences_whose_positions_divide_are_split(length, sizes, expected):
    assert splits(length, mesh_of(**{"data": 1, **sizes})) == expected
