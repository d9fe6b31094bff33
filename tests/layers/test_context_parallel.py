"""Attention over split sequences equals attention on one device, whatever computes it."""

from dataclasses import replace
from functools import cache

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
from transformer_jax.layers.dropout import DropoutMask, dropout_mask
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


CHANGES = Partial(in_order, Partial(add_slopes, random(HEADS)), Partial(add_relative_keys, random(5, SIZE)))
WINDOW = replace(MASKS["packed and causal"], mask_mod=Window(9, 0))
# The mask, the key heads and the change of scores; two key heads for four devices that share the
# query heads.
CASES = {name: (mask, HEADS, None) for name, mask in MASKS.items()} | {"changed scores": (WINDOW, 2, CHANGES)}


def arrays_of(name: str) -> list[jax.Array]:
    mask, key_heads, _ = CASES[name]
    lengths = mask.query_segments.shape[1], *[mask.key_segments.shape[1]] * 2
    heads = HEADS, key_heads, key_heads
    return [random(ROWS, head, length, SIZE) for head, length in zip(heads, lengths, strict=True)]


def drops_of() -> DropoutMask:
    return dropout_mask(0.3, jax.random.key(1))


@cache
def on_one_device(name: str, has_dropout: bool):
    mask, _, score_mod = CASES[name]
    drops = drops_of() if has_dropout else None
    return output_and_gradients(EinsumAttention(), mask, arrays_of(name), drops, score_mod=score_mod)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("to whole sources", "einsum"),
        ("changed scores", "blockwise"),
        *(pytest.param(name, "einsum", marks=pytest.mark.slow) for name in CASES if name != "to whole sources"),
        pytest.param("packed and causal", "row blocks", marks=pytest.mark.slow),
    ],
)
def test_it_equals_attention_on_one_device(name, kind):
    (mask, _, score_mod), mesh = CASES[name], mesh_of(data=1, fsdp=2, context=2, tensor=2)
    arrays = arrays_of(name)
    backend = {
        "einsum": EinsumAttention(),
        "blockwise": BlockwiseAttention(8, 8),
        "row blocks": RowBlockAttention(mesh, BY_HEAD, 1),
    }[kind]
    drops = None if kind == "row blocks" else drops_of()
    placed = [
        jax.device_put(array, jax.NamedSharding(mesh, BY_POSITION if splits(array.shape[2], mesh) else WHOLE_SEQUENCES))
        for array in arrays
    ]
    result = output_and_gradients(AllToAllAttention(backend, mesh), mask, placed, drops, score_mod=score_mod)
    assert_equal(result, on_one_device(name, drops is not None), 1e-5)


def test_devices_exchange_heads_for_positions_and_gather_nothing():
    mask, mesh = MASKS["packed and causal"], mesh_of(data=2, context=4)
    backend = AllToAllAttention(EinsumAttention(), mesh)
    array = jax.ShapeDtypeStruct((ROWS, HEADS, 32, SIZE), jnp.float32, sharding=jax.NamedSharding(mesh, BY_POSITION))
    lowered = jax.jit(lambda *arrays: output_and_gradients(backend, mask, arrays)).lower(*[array] * 3)
    program = lowered.compile().as_text()
    # Query, key, value and output, and the gradient of each.
    assert program.count(" all-to-all(") == 8
    assert "all-gather" not in program
