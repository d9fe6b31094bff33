"""The numerics against somebody else's code: PyTorch's Transformer with the same weights."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.config import TransformerConfig
from transformer_jax.layers.normalization import EPSILON
from transformer_jax.layers.positions import sinusoid_table
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import init_params, shift_right
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.losses import label_smoothed_cross_entropy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
CONFIG = TransformerConfig(
    num_encoder_layers=2, num_decoder_layers=2, d_model=32, d_ff=64, num_heads=4, dropout=0.0, embedding_dropout=0.0
)
VOCABULARY = 23
SMOOTHING = 0.1
NORMS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}


def random_ids(seed: int, lengths: list[int], width: int) -> Tokens:
    ids = np.random.default_rng(seed).integers(4, VOCABULARY, (len(lengths), width))
    ids[np.arange(width)[None, :] >= np.array(lengths)[:, None]] = 0
    return Tokens.from_ids(ids.astype(np.int32))


SOURCE, TARGET = random_ids(0, [7, 4, 6], 7), random_ids(1, [5, 6, 3], 6)


def by_torch_names(params: dict) -> dict[str, np.ndarray]:
    """Our parameters, or their gradients, in the layout and with the names of torch."""
    found = {"table": params["source_embedding"]["table"]}
    for side in NORMS:
        for index in range(2):
            ours, layer = params[f"{side}_layers_{index}"], f"{side}.layers.{index}."
            for kind, name in (("self_attention", "self_attn"), ("cross_attention", "multihead_attn")):
                if kind in ours:
                    heads = [ours[kind][part].reshape(32, 32).T for part in ("query", "key", "value")]
                    found[f"{layer}{name}.in_proj_weight"] = np.concatenate(heads)
                    found[f"{layer}{name}.out_proj.weight"] = ours[kind]["output"].reshape(32, 32).T
            for number, part in enumerate(("wide", "narrow"), start=1):
                found[f"{layer}linear{number}.weight"] = ours["feed_forward"][f"{part}_kernel"].T
                found[f"{layer}linear{number}.bias"] = ours["feed_forward"][f"{part}_bias"]
            for number, kind in enumerate(NORMS[side], start=1):
                norm = ours[f"{kind}_residual"]["norm"]
                found |= {f"{layer}norm{number}.weight": norm["scale"], f"{layer}norm{number}.bias": norm["bias"]}
    return found


def of_torch(weights: dict[str, np.ndarray]) -> tuple[np.ndarray, float, dict[str, np.ndarray]]:
    """Logits, loss and gradients by name of PyTorch's Transformer with these weights."""
    layer = {"d_model": 32, "nhead": 4, "dim_feedforward": 64, "dropout": 0.0, "batch_first": True}
    layer["layer_norm_eps"] = EPSILON
    # Without the norms after the last layers, which torch adds and the paper does not have.
    stacks = {
        "custom_encoder": torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(**layer), 2, norm=None, enable_nested_tensor=False
        ),
        "custom_decoder": torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(**layer), 2, norm=None),
    }
    transformer = torch.nn.Transformer(**layer, **stacks)
    given = {name: torch.from_numpy(np.array(each)) for name, each in weights.items()}
    for name, leaf in transformer.named_parameters():
        # The paper's projections have no biases.
        leaf.data = given.get(name, torch.zeros_like(leaf))
    table, positions = given["table"].requires_grad_(), torch.from_numpy(sinusoid_table(7, 32))
    source, target, inputs = (
        torch.from_numpy(np.array(ids, np.int64)) for ids in (SOURCE.ids, TARGET.ids, shift_right(TARGET))
    )
    hidden = transformer(
        *(table[ids] * 32**0.5 + positions[: ids.shape[1]] for ids in (source, inputs)),
        tgt_mask=torch.triu(torch.ones(6, 6, dtype=torch.bool), 1),
        src_key_padding_mask=source == 0,
        memory_key_padding_mask=source == 0,
    )
    logits = hidden @ table.T
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=0, label_smoothing=SMOOTHING
    )
    loss.backward()
    gradients = {name: leaf.grad.numpy() for name, leaf in transformer.named_parameters() if name in given}
    return logits.detach().numpy(), loss.item(), gradients | {"table": table.grad.numpy()}


def test_logits_loss_and_gradients():
    model = build_model(CONFIG, VOCABULARY, VOCABULARY)
    params = random_params(partial(init_params, model), jax.random.key(0))
    their_logits, their_loss, theirs = of_torch(by_torch_names(params))

    def loss_and_logits(params: dict) -> tuple[jax.Array, jax.Array]:
        logits = model.apply({"params": params}, SOURCE, TARGET, train=False)
        weights = jnp.asarray(TARGET.segments, jnp.float32)
        sums = label_smoothed_cross_entropy(logits, jnp.asarray(TARGET.ids), weights, SMOOTHING)
        return sums.loss / sums.tokens, logits

    (loss, logits), gradient = jax.jit(jax.value_and_grad(loss_and_logits, has_aux=True))(params)
    assert np.abs(logits - their_logits)[TARGET.segments > 0].max() < 1e-4
    assert float(loss) == pytest.approx(their_loss, abs=1e-5)
    ours = by_torch_names(gradient)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        bound = 1e-3 * float(np.abs(expected).max()) + 1e-7
        np.testing.assert_allclose(ours[name], expected, atol=bound, err_msg=name)
