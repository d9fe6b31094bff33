"""The numerics against PyTorch's Transformer with the same weights, in a process."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import TransformerConfig
from transformer_jax.layers.normalization import EPSILON
from transformer_jax.layers.positions import sinusoid_table
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import shift_right
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.losses import label_smoothed_cross_entropy

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

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
    result = {"table": params["source_embedding"]["table"]}
    for side in NORMS:
        for index in range(2):
            ours, layer = params[f"{side}_layers_{index}"], f"{side}.layers.{index}."
            for kind, name in (("self_attention", "self_attn"), ("cross_attention", "multihead_attn")):
                if kind in ours:
                    heads = [ours[kind][part].reshape(32, 32).T for part in ("query", "key", "value")]
                    result[f"{layer}{name}.in_proj_weight"] = np.concatenate(heads)
                    result[f"{layer}{name}.out_proj.weight"] = ours[kind]["output"].reshape(32, 32).T
            for number, part in enumerate(("wide", "narrow"), start=1):
                result[f"{layer}linear{number}.weight"] = ours["feed_forward"][f"{part}_kernel"].T
                result[f"{layer}linear{number}.bias"] = ours["feed_forward"][f"{part}_bias"]
            for number, kind in enumerate(NORMS[side], start=1):
                norm = ours[f"{kind}_residual"]["norm"]
                result |= {f"{layer}norm{number}.weight": norm["scale"], f"{layer}norm{number}.bias": norm["bias"]}
    return result


def test_logits_loss_and_gradients(tmp_path):
    model = build_model(CONFIG, VOCABULARY, VOCABULARY)
    params = model.init(jax.random.key(0), SOURCE, TARGET, train=False)["params"]
    # Biases and gains away from their initial values, so that a swapped one shows.
    keys = jax.random.split(jax.random.key(1), len(jax.tree.leaves(params)))
    noise = jax.tree.unflatten(jax.tree.structure(params), list(keys))
    params = jax.tree.map(lambda leaf, key: leaf + 0.1 * jax.random.normal(key, leaf.shape), params, noise)
    inputs = np.asarray(shift_right(TARGET))
    ids = {"source": SOURCE.ids, "target": TARGET.ids, "inputs": inputs}
    arrays = {name: np.asarray(item, np.int64) for name, item in ids.items()} | {"positions": sinusoid_table(7, 32)}
    arrays |= {"smoothing": np.float32(SMOOTHING), "epsilon": np.float32(EPSILON)}
    np.savez(tmp_path / "in.npz", **arrays, **by_torch_names(params))
    script = Path(__file__).with_name("torch_transformer.py")
    subprocess.run([sys.executable, script, tmp_path / "in.npz", tmp_path / "out.npz"], check=True)
    theirs = dict(np.load(tmp_path / "out.npz"))

    def loss_and_logits(params: dict) -> tuple[jax.Array, jax.Array]:
        logits = model.apply({"params": params}, SOURCE, TARGET, train=False)
        weights = jnp.asarray(TARGET.segments, jnp.float32)
        sums = label_smoothed_cross_entropy(logits, jnp.asarray(TARGET.ids), weights, SMOOTHING)
        return sums.loss / sums.tokens, logits

    (loss, logits), gradient = jax.jit(jax.value_and_grad(loss_and_logits, has_aux=True))(params)
    assert np.abs(logits - theirs.pop("logits"))[TARGET.segments > 0].max() < 1e-4
    assert float(loss) == pytest.approx(float(theirs.pop("loss")), abs=1e-5)
    ours = by_torch_names(gradient)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        bound = 1e-3 * float(np.abs(expected).max()) + 1e-7
        np.testing.assert_allclose(ours[name], expected, atol=bound, err_msg=name)
