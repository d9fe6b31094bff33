"""The commands export, verify and import, from flags to exit status."""

import json

import numpy as np
import pytest
from libraries import library
from run_steps import read_parameters
from tools.interop.small_models import TEXTS, small_model

import transformer_jax
from transformer_jax.__main__ import main
from transformer_jax.tools.interop.interop_commands import format_module

library("ctranslate2", "export")
library("safetensors", "export")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    folder.mkdir()
    small_model(norm_epsilon=0.1).write(folder)
    (folder.parent / "in.txt").write_text("\n".join(TEXTS))
    return folder


@pytest.mark.slow
def test_an_exported_model_is_compared_and_a_wrong_one_is_found(run, tmp_path, monkeypatch, capsys):
    output, text = tmp_path / "out", f"--source={run.parent}/in.txt"
    assert main(["export", f"--workdir={run}", "--format=ctranslate2", f"--output={output}", text]) == 0
    assert "largest difference" in capsys.readouterr().out
    verify = ["verify", f"--workdir={run}", f"--against={output}", text, "--sentences=2"]
    assert main(verify) == 0
    described = json.loads((output / "config.json").read_text())
    (output / "config.json").write_text(json.dumps(described | {"add_source_eos": False}))
    capsys.readouterr()
    assert main(verify) == 1
    assert "largest difference" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["export", f"--workdir={run}", "--format=ctranslate2", "--output=unseen", "--no_verify"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("unseen: ctranslate2, ") and "largest difference" not in printed
    origin = json.loads((tmp_path / "unseen" / "origin.json").read_text())
    assert origin["package"]["version"] == transformer_jax.__version__ and origin["run"] == str(run)


@pytest.mark.slow
def test_an_imported_run_is_fine_tuned(tmp_path):
    (tmp_path / "marian").mkdir()
    format_module("huggingface").export(small_model(norm_epsilon=1e-5).opened(), tmp_path / "marian")
    settings = ("data.generated_pairs=300", "data.max_source_tokens=47", "data.max_target_tokens=47")
    settings += ("batching.tokens_per_update=512", "decoding.max_extra_tokens=4", "training.num_updates=2")
    flags = [f"--config.{setting}" for setting in (*settings, f"data.cache_directory={tmp_path}/cache")]
    run, tuned = tmp_path / "run", tmp_path / "tuned"
    assert main(["import", "--format=huggingface", f"--input={tmp_path}/marian", f"--workdir={run}", *flags]) == 0
    flags = [f"--config.init.run={run}", "--config.optimizer.freeze=^encoder_"]
    assert main(["train", f"--config={run}", f"--workdir={tuned}", *flags]) == 0
    before, after = (read_parameters(folder, "last") for folder in (run, tuned))
    for name, leaf in before.items():
        assert np.array_equal(after[name], leaf) == name.startswith("encoder_"), name
    assert json.loads((tuned / "run.json").read_text())[0]["initial_parameters"]["run"] == str(run)
