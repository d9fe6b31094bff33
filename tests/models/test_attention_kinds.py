import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.models.attention_kinds import layers_by_kind
from transformer_jax.models.inspection import AttentionRecord
from transformer_jax.tools.explorer.attention_readings import attention_readings

LAYERS = 11


def test_layers_keep_their_order_through_jit():
    paths = [f"encoder_layers_{layer}/self_attention" for layer in range(LAYERS)]
    values = jax.jit(lambda: {path: jnp.float32(layer) for layer, path in enumerate(paths)})()
    assert list(values) == sorted(paths) != paths
    assert [*map(float, layers_by_kind(values)["encoder"].values())] == list(range(LAYERS))


def test_kinds_are_told_apart_and_others_left_out():
    paths = [
        "decoder/cross_attention",
        "decoder_layers_0/self_attention",
        "decoder_layers_0/cross_attention",
        "pooling",
    ]
    found = layers_by_kind(dict.fromkeys(paths, 0))
    assert {kind: list(layers) for kind, layers in found.items()} == {
        "decoder": ["decoder_layers_0/self_attention"],
        "cross": ["decoder/cross_attention", "decoder_layers_0/cross_attention"],
    }


def test_readings_have_the_first_layer_first():
    records = {
        f"decoder_layers_{layer}/self_attention": AttentionRecord(
            np.full((1, 1, 2, 2), layer, np.float32), np.ones((1, 1, 2, 3), np.float32)
        )
        for layer in sorted(range(LAYERS), key=str)
    }
    (reading,) = attention_readings(records, {"target": 2, "input": 2})
    assert reading.weights.values[:, 0, 0, 0].tolist() == list(range(LAYERS))
