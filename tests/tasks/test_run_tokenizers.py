"""A run's tokenizers survive the loss of their folder: every checkpoint has them."""

import json
import shutil

import pytest
from run_settings import tiny_settings

from transformer_jax.commands.train import train_and_report
from transformer_jax.config import DataError, from_dict
from transformer_jax.data.tokenizers import load_tokenizers
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.tasks import run_tokenizers
from transformer_jax.tasks.new_tokenizers import tokenizers_for_training
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.tasks.translation.translation_task import TranslationTask


@pytest.mark.slow
def test_they_come_back_from_the_newest_checkpoint(tmp_path):
    settings = tiny_settings(tmp_path / "cache", num_updates=1, checkpoint_every=1, evaluate_every=1)
    settings["mesh"]["data"] = -1
    config = from_dict(settings)
    assert train_and_report(config, str(tmp_path / "run")) == 0
    run = RunDirectory(tmp_path / "run")
    before = {file.name: file.read_bytes() for file in run.tokenizer.iterdir()}
    assert run.curves.is_file()
    for damage in (shutil.rmtree, lambda folder: (folder / "tokenizer.joint.json").write_text("{")):
        for tokenizers in (tokenizers_of_run, lambda run: tokenizers_for_training(config, run, TranslationTask)):
            damage(run.tokenizer)
            tokenizers(run)
            assert {file.name: file.read_bytes() for file in run.tokenizer.iterdir()} == before


@pytest.mark.parametrize("name", ["../../written", "config.json"])
def test_a_checkpoint_cannot_name_another_file_to_write(tmp_path, name, monkeypatch):
    run = RunDirectory(tmp_path / "a" / "run")
    monkeypatch.setattr(run_tokenizers, "_saved_tokenizers", lambda run: {name: "aGVsbG8="})
    with pytest.raises(DataError, match="a checkpoint names a tokenizer file"):
        tokenizers_of_run(run)
    assert not list(tmp_path.iterdir())


def test_tokenizers_are_not_restored_through_a_link(tmp_path, monkeypatch):
    run, elsewhere = RunDirectory(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    run.path.mkdir()
    run.tokenizer.symlink_to(elsewhere)
    monkeypatch.setattr(run_tokenizers, "_saved_tokenizers", lambda run: {"tokenizer.json": "aGVsbG8="})
    with pytest.raises(DataError, match="is a link"):
        tokenizers_of_run(run)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("entry", [{"file": "../secret.json", "sha256": "", "kind": "word"}, {"file": ["a"]}, None])
def test_a_description_cannot_name_another_file_to_read(tmp_path, entry):
    (tmp_path / "secret.json").write_text("{}")
    description = {"format_version": 1, "special_ids": {"pad": 0, "bos": 1, "eos": 2, "unk": 3}}
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(description | {"tokenizers": {"joint": entry}}))
    with pytest.raises(DataError, match="not the description of a tokenizer"):
        load_tokenizers(folder)
