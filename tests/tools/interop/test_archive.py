"""The archive format: what is written, what is read back, what is refused."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from libraries import library
from tools.interop.small_models import TEXTS, opened, small_model

from transformer_jax.__main__ import main
from transformer_jax.config import DataError, DecodingConfig
from transformer_jax.tools.interop import archive_export, archive_reader
from transformer_jax.tools.interop.formats import open_counterpart
from transformer_jax.tools.interop.opened_model import Example
from transformer_jax.tools.interop.safetensors_file import read_tensors, write_tensors

library("safetensors", "export")


@pytest.fixture(scope="module")
def model():
    return small_model()


def test_parameters_come_back_bit_for_bit(model, archive):
    found = archive_reader.read(archive)
    assert found.config == model.config
    assert found.tokenizers.source.fingerprint() == model.tokenizers.source.fingerprint()
    assert {name: leaf.tobytes() for name, leaf in found.named.items()} == {
        name: leaf.tobytes() for name, leaf in model.named.items()
    }


def test_golden_logits_are_those_of_the_ids_beside_them(model, archive):
    golden = read_tensors(archive / "golden.safetensors")
    assert {name for name in golden if name.startswith("logits")} == {f"logits_{n}" for n in range(len(TEXTS))}
    assert golden["logits_0"].shape == (len(golden["target_0"]), 400)
    # Greedy translations end with the choice that is left, EOS; every other token has the largest logit.
    assert np.array_equal(golden["logits_0"][:-1].argmax(-1), golden["target_0"][:-1])


@pytest.mark.slow
def test_an_imported_run_translates(archive, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["import", "--format=safetensors", f"--input={archive}", f"--workdir={run}"]) == 0
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    flags = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out.txt"]
    assert main(["translate", f"--workdir={run}", "--config.decoding.beam_width=1", *flags]) == 0
    translate = opened(small_model()).translator(DecodingConfig(beam_width=1, max_extra_tokens=4)).translate
    expected = [best[0].text for best in translate(small_model().params(), TEXTS)]
    assert (tmp_path / "out.txt").read_text().splitlines() == expected
    assert main(["verify", f"--workdir={run}", f"--against={archive}", "--sentences=2"]) == 0
    assert "largest difference" in capsys.readouterr().out


def damage(archive, kind):
    if kind == "truncated":
        content = (archive / "model.safetensors").read_bytes()
        (archive / "model.safetensors").write_bytes(content[:-100])
    elif kind in ("missing", "unexpected"):
        tensors = read_tensors(archive / "model.safetensors")
        if kind == "missing":
            del tensors["encoder_layers_0/self_attention/query"]
        else:
            tensors["stray"] = np.zeros(2, np.float32)
        write_tensors(archive / "model.safetensors", tensors)
        manifest = json.loads((archive / "manifest.json").read_text())
        del manifest["files"]["model.safetensors"]
        (archive / "manifest.json").write_text(json.dumps(manifest))
    elif kind == "newer":
        (archive / "manifest.json").write_text('{"schema_version": 9, "files": {}, "tensors": {}, "golden": {}}')
    else:
        (archive / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("truncated", "model.safetensors: is not what the manifest describes"),
        ("missing", "tensors are missing: encoder_layers_0/self_attention/query"),
        ("unexpected", "unexpected tensors: stray"),
        ("newer", "schema_version 9; this version reads 1"),
        ("wrong directory", "manifest.json: No such file"),
    ],
)
def test_damage_is_named_and_nothing_is_written(kind, problem, archive, tmp_path, capsys):
    copy = shutil.copytree(archive, tmp_path / "copy")
    damage(copy, kind)
    assert main(["import", "--format=safetensors", f"--input={copy}", f"--workdir={tmp_path}/run"]) == 2
    assert problem in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["copy"]


def test_a_truncated_file_of_tensors_is_named(archive, tmp_path):
    (tmp_path / "cut.safetensors").write_bytes((archive / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(DataError, match="cut.safetensors: damaged or cut short"):
        read_tensors(tmp_path / "cut.safetensors")


def test_an_archive_with_other_settings_is_refused(archive, tmp_path):
    copy = shutil.copytree(archive, tmp_path / "copy")
    config, manifest = (json.loads((copy / name).read_text()) for name in ("config.json", "manifest.json"))
    config["config"]["model"]["norm_epsilon"] = 0.1
    (copy / "config.json").write_text(json.dumps(config))
    manifest["files"]["config.json"] = hashlib.sha256((copy / "config.json").read_bytes()).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="golden.safetensors: 3 of 3 sentences have other logits"):
        archive_reader.read(copy)
    # Its own settings are used, not those of the run.
    model = opened(small_model())
    example = Example([20, 30, 2], [40, 50, 2])
    (theirs,), (ours,) = open_counterpart(copy, model).outputs([example]), model.logits([example])
    assert np.abs(theirs - ours).max() > 1e-2


def test_settings_are_archived_as_the_run_has_them(tmp_path):
    archive_export.export(opened(small_model(compute_dtype="bfloat16")), tmp_path, [])
    found = archive_reader.read(tmp_path)
    assert found.config.model.compute_dtype == "bfloat16"
    assert found.opened().config.model.compute_dtype == "float32"


def test_parameters_that_are_no_numbers_are_refused():
    model = small_model()
    model.named["encoder_layers_0/self_attention/query"][0, 0, 0] = np.nan
    with pytest.raises(DataError, match="encoder_layers_0/self_attention/query: has values that are not finite"):
        model.params()
