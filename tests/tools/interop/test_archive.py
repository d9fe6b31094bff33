"""The archive format: its content, reading, and refusal of damaged files."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from libraries import library
from tools.interop.small_models import TEXTS, assert_same_parameters, small_model

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.interop import archive as archive_format
from transformer_jax.tools.interop.interop_commands import open_counterpart
from transformer_jax.tools.interop.models import Example
from transformer_jax.tools.interop.weight_files import read_tensors, write_tensors

library("safetensors", "export")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "internals" / "interop.md"
MODEL, QUERY = "model.safetensors", "encoder_layers_0/self_attention/query"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    model = small_model().opened()
    # Commands change settings for their use; the archive has the saved ones.
    archive_format.export(replace(model, saved_config=replace(model.config, seed=7)), folder, TEXTS)
    return folder


def test_parameters_come_back_bit_for_bit(archive):
    imported, model = archive_format.read(archive), small_model()
    assert_same_parameters(imported, model)
    assert imported.config == replace(model.config, seed=7)
    assert imported.tokenizers.source.fingerprint() == model.tokenizers.source.fingerprint()
    golden = read_tensors(archive / "golden.safetensors")
    # Every token of a greedy translation but the last has the largest logit.
    assert np.array_equal(golden["logits_0"][:-1].argmax(-1), golden["target_0"][:-1])


@pytest.mark.slow
def test_an_imported_run_translates(archive, tmp_path, capsys):
    run, model = tmp_path / "run", small_model().opened()
    assert main(["import", "--format=safetensors", f"--input={archive}", f"--workdir={run}"]) == 0
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    flags = [f"--source={tmp_path}/in.txt", f"--output={tmp_path}/out.txt"]
    assert main(["translate", f"--workdir={run}", "--config.decoding.beam_width=1", *flags]) == 0
    expected = [model.tokenizers.target.decode(example.target) for example in model.examples(TEXTS)]
    assert (tmp_path / "out.txt").read_text().splitlines() == expected
    assert main(["verify", f"--workdir={run}", f"--against={archive}", "--sentences=2"]) == 0
    assert "largest difference" in capsys.readouterr().out


def test_the_documented_script_reads_and_checks_it(archive, tmp_path):
    copy = shutil.copytree(archive, tmp_path / "copy")
    program = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)[1]
    command = [sys.executable, "-I", "-O", "-c", program, str(copy)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed == [f"model {len(small_model().arrays)} tensors", "golden 9 tensors"]
    (copy / MODEL).write_bytes((archive / MODEL).read_bytes()[:-100])
    damaged = subprocess.run(command, capture_output=True, text=True)
    assert damaged.returncode == 1 and "model.safetensors is damaged" in damaged.stderr


def rewrite(archive, name, content):
    """A changed file whose digest is in the manifest."""
    (archive / name).write_text(content) if isinstance(content, str) else write_tensors(archive / name, content)
    manifest = json.loads((archive / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256((archive / name).read_bytes()).hexdigest()
    (archive / "manifest.json").write_text(json.dumps(manifest))


def test_damage_is_named_and_nothing_is_written(archive, tmp_path, capsys):
    tensors, copy = read_tensors(archive / MODEL), tmp_path / "copy"
    some, nan = {QUERY: tensors[QUERY]}, {QUERY: tensors[QUERY] * np.nan}
    for damage, problem in (
        (lambda: (copy / MODEL).write_bytes(b"cut short"), f"{MODEL}: differs from the manifest"),
        (lambda: rewrite(copy, MODEL, some), "tensors are missing: decoder_layers_0/cross_attention/key"),
        (lambda: rewrite(copy, MODEL, tensors | nan), f"{QUERY}: has values that are not finite; the model is damaged"),
        (
            lambda: (copy / "manifest.json").write_text('{"schema_version": 9}'),
            "schema_version 9, but this version reads 1",
        ),
        (
            lambda: (copy / "manifest.json").write_text('{"schema_version": 1, "files": {"/etc/hostname": ""}}'),
            f"'/etc/hostname' is outside of the archive {copy}",
        ),
        (
            lambda: (copy / "manifest.json").write_text('{"schema_version": 1, "files": {"../file": ""}}'),
            "'../file' is outside of the archive",
        ),
    ):
        shutil.copytree(archive, copy)
        damage()
        assert main(["import", "--format=safetensors", f"--input={copy}", f"--workdir={tmp_path}/run"]) == 2
        assert problem in capsys.readouterr().err
        assert [entry.name for entry in tmp_path.iterdir()] == ["copy"]
        shutil.rmtree(copy)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("d_model", 2**30),
        ("d_ff", 10**9),
        ("num_encoder_layers", 10**4),
        ("num_encoder_layers", 10**9),
        ("num_decoder_layers", 10**9),
        ("num_heads", 2**30),
    ],
)
def test_sizes_that_no_tensor_has_are_refused_before_the_model_is_built(archive, tmp_path, key, value):
    copy = shutil.copytree(archive, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["config"]["model"][key] = value
    if key == "num_heads":
        config["config"]["model"]["d_model"] = value
    rewrite(copy, "config.json", json.dumps(config))
    # More layers than a setting allows are not listed.
    problem = (
        "must be at most 10000" if "layers" in key and value > 10**4 else r"does not fit the parameters, \d+ tensors"
    )
    with pytest.raises((ConfigError, DataError), match=rf"model\.\w+: [\d,]+ {problem}"):
        archive_format.read(copy)


@pytest.mark.parametrize("name", ["manifest.json", "config.json", "model.safetensors", "tokenizer/more"])
def test_a_pipe_in_an_archive_is_refused(archive, tmp_path, capsys, name):
    copy = shutil.copytree(archive, tmp_path / "copy")
    (copy / name).unlink(missing_ok=True)
    os.mkfifo(copy / name)
    assert main(["import", "--format=safetensors", f"--input={copy}", f"--workdir={tmp_path}/run"]) == 2
    assert f"{copy / name}: a pipe or a device, not a file" in capsys.readouterr().err


def test_an_archive_with_other_settings_is_refused(archive, tmp_path):
    copy = shutil.copytree(archive, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["config"]["model"]["norm_epsilon"] = 0.1
    rewrite(copy, "config.json", json.dumps(config))
    with pytest.raises(DataError, match="golden.safetensors: the logits of 3 of 3 sentences differ"):
        archive_format.read(copy)
    # The counterpart computes with its own settings, not with the settings of the run.
    model = small_model().opened()
    example = Example([20, 30, 2], [40, 50, 2])
    (theirs,), (ours,) = open_counterpart(copy, model).outputs([example]), model.logits([example])
    assert np.abs(theirs - ours).max() > 1e-2
