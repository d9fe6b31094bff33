"""Marian models of the library transformers, both ways."""

import json
from pathlib import Path

import numpy as np
import pytest
from libraries import library
from tools.interop.marian_models import save_marian
from tools.interop.small_models import TEXTS, opened, small_model

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.interop import marian
from transformer_jax.tools.interop.formats import open_counterpart
from transformer_jax.tools.interop.parity import compare
from transformer_jax.tools.interop.weight_files import load_tensors_only

torch = library("torch", "export")


@pytest.fixture(scope="module")
def opus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opus")
    save_marian(folder, dropout=0.3, activation_dropout=0.2)
    return folder


def assert_same(model, folder, bound=2e-5):
    found = compare(model, open_counterpart(folder, model), TEXTS)
    assert found.holds, found.rows()
    assert found.largest < bound
    assert ("tokenized alike", len(TEXTS), len(TEXTS)) in found.checks


def test_a_random_model_of_theirs_computes_the_same_here(opus):
    found = marian.read(opus)
    assert found.config.model.attention == "biased"
    assert found.config.model.logits_bias
    assert (found.config.data.source_language, found.config.data.target_language) == ("eng", "deu")
    assert (found.config.model.dropout, found.config.model.activation_dropout) == (0.3, 0.2)
    assert_same(opened(found), opus)


@pytest.mark.parametrize("settings", [{}, {"tying": "output", "attention": "biased", "logits_bias": True}])
def test_a_model_comes_back_from_theirs_bit_for_bit(settings, tmp_path):
    model = small_model(norm_epsilon=1e-5, feed_forward="gelu", **settings)
    marian.export(opened(model), tmp_path)
    found = marian.read(tmp_path)
    assert found.config.model == model.config.model
    assert set(found.named) == set(model.named)
    assert all(found.named[name].tobytes() == leaf.tobytes() for name, leaf in model.named.items())
    assert found.tokenizers.source.encode_batch(TEXTS) == model.tokenizers.source.encode_batch(TEXTS)


@pytest.mark.slow
def test_their_library_computes_the_same(tmp_path):
    model = opened(small_model(norm_epsilon=1e-5, feed_forward="gelu"))
    marian.export(model, tmp_path)
    assert_same(model, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"normalization": "pre"},
        {"feed_forward": "gated_silu"},
        {"norm_epsilon": 0.1},
    ],
)
def test_a_setting_that_marian_lacks_is_named(settings, tmp_path):
    with pytest.raises(ConfigError, match=f"model.{next(iter(settings))}: .* Marian"):
        marian.export(opened(small_model(**settings)), tmp_path)


UNREADABLE = [
    ({"model_type": "bart"}, "model_type='bart' is not one of marian, gpt2, m2m_100"),
    ({"activation_function": "tanh"}, "activation_function='tanh'"),
    ({"normalize_before": True}, "config.json: normalize_before=True is not supported; expected False"),
    ({"encoder_layers": 3}, "tensors are missing: encoder.layers.2"),
    ({"encoder_layers": 1}, "unexpected tensors: encoder.layers.1"),
    (
        {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
        "model: decoder.layers.0.fc2.weight has shape (16, 24), expected (16, 32)",
    ),
    ({"d_model": 32}, "the source table has shape (399, 16), but the model has width 32"),
    ({"d_model": None}, "config.json: d_model=None is not of type int"),
    ({"eos_token_id": [0]}, "eos_token_id=[0] is not of type int"),
    ({"vocab_size": 390}, "vocab.json: 399 pieces; config.json says 390"),
]


def test_what_cannot_be_read_is_named_and_nothing_is_written(opus, tmp_path, capsys):
    folder = tmp_path / "theirs"
    folder.mkdir()

    def problem():
        assert main(["import", "--format=huggingface", f"--input={folder}", f"--workdir={tmp_path}/run"]) == 2
        assert [entry.name for entry in tmp_path.iterdir()] == ["theirs"]
        return capsys.readouterr().err

    assert "config.json: No such file" in problem()
    for name in ("vocab.json", "source.spm", "target.spm", "model.safetensors"):
        (folder / name).symlink_to(opus / name)
    described = json.loads((opus / "config.json").read_text())
    for settings, message in UNREADABLE:
        (folder / "config.json").write_text(json.dumps(described | settings))
        assert message in problem()
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "model.safetensors").unlink()
    assert "neither model.safetensors nor pytorch_model.bin" in problem()


def test_a_pickle_that_could_run_code_is_refused(tmp_path):
    torch.save({"model": Path}, tmp_path / "strange.pt")
    with pytest.raises(DataError, match=r"strange.pt: damaged, or has other objects than tensors"):
        load_tensors_only(tmp_path / "strange.pt")
    torch.save({"weight": torch.ones(2)}, tmp_path / "plain.pt")
    np.testing.assert_array_equal(load_tensors_only(tmp_path / "plain.pt")["weight"], np.ones(2))
    (tmp_path / "plain.pt").write_bytes((tmp_path / "plain.pt").read_bytes()[:-100])
    with pytest.raises(DataError, match=r"plain.pt: damaged"):
        load_tensors_only(tmp_path / "plain.pt")
