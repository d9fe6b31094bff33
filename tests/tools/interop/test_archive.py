"""The archive format: what is written, what is read back, what is refused."""

import hashlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from libraries import library
from tools.interop.small_models import TEXTS, code_of, opened, small_model

from transformer_jax.__main__ import main
from transformer_jax.config import DataError, DecodingConfig
from transformer_jax.tools.interop import archive as archive_format
from transformer_jax.tools.interop.formats import open_counterpart
from transformer_jax.tools.interop.opened_model import Example
from transformer_jax.tools.interop.weight_files import read_tensors, write_tensors

library("safetensors", "export")


def test_parameters_come_back_bit_for_bit(archive):
    found, model = archive_format.read(archive), small_model()
    assert found.config == model.config
    assert found.tokenizers.source.fingerprint() == model.tokenizers.source.fingerprint()
    assert {name: leaf.tobytes() for name, leaf in found.named.items()} == {
        name: leaf.tobytes() for name, leaf in model.named.items()
    }
    golden = read_tensors(archive / "golden.safetensors")
    # Every token of a greedy translation but the last has the largest logit.
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


def test_the_documented_script_reads_and_checks_it(archive, tmp_path):
    copy = shutil.copytree(archive, tmp_path / "copy")
    command = [sys.executable, "-I", "-O", "-c", code_of("An archive without this package"), str(copy)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert found == [f"model {len(small_model().named)} tensors", "golden 9 tensors"]
    damage(copy, "truncated")
    damaged = subprocess.run(command, capture_output=True, text=True)
    assert damaged.returncode == 1 and "model.safetensors is damaged" in damaged.stderr


def rewrite(archive, name, content):
    """A changed file whose digest is in the manifest."""
    (archive / name).write_text(content) if isinstance(content, str) else write_tensors(archive / name, content)
    manifest = json.loads((archive / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256((archive / name).read_bytes()).hexdigest()
    (archive / "manifest.json").write_text(json.dumps(manifest))


def damage(archive, kind):
    tensors = read_tensors(archive / "model.safetensors")
    if kind == "truncated":
        content = (archive / "model.safetensors").read_bytes()
        (archive / "model.safetensors").write_bytes(content[:-100])
    elif kind == "missing":
        del tensors["encoder_layers_0/self_attention/query"]
        rewrite(archive, "model.safetensors", tensors)
    elif kind == "unexpected":
        rewrite(archive, "model.safetensors", tensors | {"stray": np.zeros(2, np.float32)})
    elif kind == "not finite":
        tensors["encoder_layers_0/self_attention/query"][0, 0, 0] = np.nan
        rewrite(archive, "model.safetensors", tensors)
    elif kind == "newer":
        (archive / "manifest.json").write_text('{"schema_version": 9, "files": {}}')
    else:
        (archive / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("truncated", "model.safetensors: is not what the manifest describes"),
        ("missing", "tensors are missing: encoder_layers_0/self_attention/query"),
        ("unexpected", "unexpected tensors: stray"),
        ("not finite", "encoder_layers_0/self_attention/query: has values that are not finite; the model is damaged"),
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


def test_an_archive_with_other_settings_is_refused(archive, tmp_path):
    copy = shutil.copytree(archive, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["config"]["model"]["norm_epsilon"] = 0.1
    rewrite(copy, "config.json", json.dumps(config))
    with pytest.raises(DataError, match="golden.safetensors: the logits of 3 of 3 sentences differ"):
        archive_format.read(copy)
    # The counterpart computes with its own settings, not with the settings of the run.
    model = opened(small_model())
    example = Example([20, 30, 2], [40, 50, 2])
    (theirs,), (ours,) = open_counterpart(copy, model).outputs([example]), model.logits([example])
    assert np.abs(theirs - ours).max() > 1e-2
