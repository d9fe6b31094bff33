"""The numerics against somebody else's code: PyTorch's Transformer with the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from libraries import library

from transformer_jax.config import TransformerConfig
from transformer_jax.layers.normalization import EPSILON
from transformer_jax.layers.positions import sinusoid_table
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import shift_right
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.losses import label_smoothed_cross_entropy

torch = library("torch")

CONFIG = TransformerConfig(
    num_encoder_layers=2, num_decoder_layers=2, d_model=32, d_ff=64, num_heads=4, dropout=0.0, embedding_dropout=0.0
)
VOCABULARY = 23
SMOOTHING = 0.1


def tensor(array: jax.Array) -> "torch.Tensor":
    return torch.tensor(np.asarray(array))


def random_ids(seed: int, lengths: list[int], width: int) -> Tokens:
    ids = np.random.default_rng(seed).integers(4, VOCABULARY, (len(lengths), width))
    ids[np.arange(width)[None, :] >= np.array(lengths)[:, None]] = 0
    return Tokens.from_ids(ids.astype(np.int32))


SOURCE, TARGET = random_ids(0, [7, 4, 6], 7), random_ids(1, [5, 6, 3], 6)


def torch_transformer() -> "torch.nn.Transformer":
    layer = {"d_model": 32, "nhead": 4, "dim_feedforward": 64, "dropout": 0.0, "batch_first": True}
    layer["layer_norm_eps"] = EPSILON
    # Without the norms after the last layers, which torch adds and the paper has not.
    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(**layer), 2, norm=None, enable_nested_tensor=False
    )
    decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(**layer), 2, norm=None)
    return torch.nn.Transformer(**layer, custom_encoder=encoder, custom_decoder=decoder)


def set_attention(module: "torch.nn.MultiheadAttention", params: dict) -> None:
    stacked = np.concatenate([np.asarray(params[name]).reshape(32, 32).T for name in ("query", "key", "value")])
    module.in_proj_weight.data = torch.tensor(stacked)
    module.out_proj.weight.data = tensor(params["output"].reshape(32, 32).T)
    # The paper's projections have no biases.
    module.in_proj_bias.data.zero_()
    module.out_proj.bias.data.zero_()


def set_norm(module: "torch.nn.LayerNorm", params: dict) -> None:
    module.weight.data, module.bias.data = tensor(params["norm"]["scale"]), tensor(params["norm"]["bias"])


def set_feed_forward(layer: "torch.nn.Module", params: dict) -> None:
    layer.linear1.weight.data, layer.linear1.bias.data = tensor(params["wide_kernel"].T), tensor(params["wide_bias"])
    layer.linear2.weight.data, layer.linear2.bias.data = (
        tensor(params["narrow_kernel"].T),
        tensor(params["narrow_bias"]),
    )


def copy_weights(params: dict) -> "torch.nn.Transformer":
    transformer = torch_transformer()
    for index, layer in enumerate(transformer.encoder.layers):
        ours = params[f"encoder_layers_{index}"]
        set_attention(layer.self_attn, ours["self_attention"])
        set_feed_forward(layer, ours["feed_forward"])
        set_norm(layer.norm1, ours["self_attention_residual"])
        set_norm(layer.norm2, ours["feed_forward_residual"])
    for index, layer in enumerate(transformer.decoder.layers):
        ours = params[f"decoder_layers_{index}"]
        set_attention(layer.self_attn, ours["self_attention"])
        set_attention(layer.multihead_attn, ours["cross_attention"])
        set_feed_forward(layer, ours["feed_forward"])
        for norm, name in (
            (layer.norm1, "self_attention"),
            (layer.norm2, "cross_attention"),
            (layer.norm3, "feed_forward"),
        ):
            set_norm(norm, ours[f"{name}_residual"])
    return transformer


def torch_logits(transformer: "torch.nn.Transformer", table: "torch.Tensor") -> "torch.Tensor":
    def embed(ids: np.ndarray) -> "torch.Tensor":
        return table[tensor(ids).long()] * 32**0.5 + torch.tensor(sinusoid_table(ids.shape[1], 32))[None]

    length = TARGET.ids.shape[1]
    hidden = transformer(
        embed(SOURCE.ids),
        embed(np.asarray(shift_right(TARGET))),
        tgt_mask=torch.triu(torch.ones(length, length, dtype=torch.bool), 1),
        src_key_padding_mask=tensor(SOURCE.segments == 0),
        memory_key_padding_mask=tensor(SOURCE.segments == 0),
    )
    return hidden @ table.T


@pytest.fixture(scope="module")
def both():
    model = build_model(CONFIG, VOCABULARY, VOCABULARY)
    params = model.init(jax.random.key(0), SOURCE, TARGET, train=False)["params"]
    # Biases and gains away from their starting values, so that a swapped one shows.
    keys = jax.random.split(jax.random.key(1), len(jax.tree.leaves(params)))
    noise = jax.tree.unflatten(jax.tree.structure(params), list(keys))
    params = jax.tree.map(lambda leaf, key: leaf + 0.1 * jax.random.normal(key, leaf.shape), params, noise)
    table = tensor(params["source_embedding"]["table"]).requires_grad_()
    return model, params, copy_weights(params), table


def test_logits(both):
    model, params, transformer, table = both
    ours = np.asarray(model.apply({"params": params}, SOURCE, TARGET, train=False))
    theirs = torch_logits(transformer, table).detach().numpy()
    real = TARGET.segments > 0
    assert np.abs(ours - theirs)[real].max() < 1e-4


def test_loss_and_gradients(both):
    model, params, transformer, table = both

    def our_loss(params: dict) -> jax.Array:
        logits = model.apply({"params": params}, SOURCE, TARGET, train=False)
        weights = jnp.asarray(TARGET.segments, jnp.float32)
        sums = label_smoothed_cross_entropy(logits, jnp.asarray(TARGET.ids), weights, SMOOTHING)
        return sums.loss / sums.tokens

    logits = torch_logits(transformer, table)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), tensor(TARGET.ids).long().flatten(), ignore_index=0, label_smoothing=SMOOTHING
    )
    loss.backward()
    value, gradient = jax.value_and_grad(our_loss)(params)
    assert float(value) == pytest.approx(loss.item(), abs=1e-5)

    # Our gradients, laid out as their parameters are: whatever has no place there, or no counterpart here, would show.
    ours = {"table": tensor(gradient["source_embedding"]["table"]), **named(copy_weights(gradient))}
    theirs = {"table": table.grad, **{name: leaf.grad for name, leaf in named(transformer).items()}}
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        np.testing.assert_allclose(
            ours[name].numpy(), expected.numpy(), atol=1e-3 * float(expected.abs().max()) + 1e-7, err_msg=name
        )


def named(transformer: "torch.nn.Transformer") -> dict:
    """Parameters by name, without the biases of the attention projections, which the paper has not."""
    without = "in_proj_bias", "out_proj.bias"
    return {
        name: leaf.detach() if leaf.grad is None else leaf
        for name, leaf in transformer.named_parameters()
        if not name.endswith(without)
    }
