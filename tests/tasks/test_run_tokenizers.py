"""A run's tokenizers survive the loss of their folder: every checkpoint has them."""

import shutil

import pytest
from run_settings import tiny_settings

from transformer_jax.checkpoints.run_directory import RunDirectory
from transformer_jax.config import DataError, from_dict
from transformer_jax.runs.train import train
from transformer_jax.tasks.registry import new_tokenizers
from transformer_jax.tasks.run_tokenizers import tokenizers_for_training, tokenizers_of_run


def test_they_come_back_from_the_newest_checkpoint(tmp_path):
    settings = tiny_settings(tmp_path / "cache", num_updates=1, checkpoint_every=1, evaluate_every=1)
    settings["mesh"]["data"] = -1
    config = from_dict(settings)
    assert train(config, str(tmp_path / "run")) == 0
    run = RunDirectory(tmp_path / "run")
    before = {file.name: file.read_bytes() for file in run.tokenizer.iterdir()}
    assert run.curves.is_file()
    for damage in (shutil.rmtree, lambda folder: (folder / "tokenizer.joint.json").write_text("{")):
        for tokenizers in (tokenizers_of_run, lambda run: tokenizers_for_training(config, run, new_tokenizers)):
            damage(run.tokenizer)
            tokenizers(run)
            assert {file.name: file.read_bytes() for file in run.tokenizer.iterdir()} == before


def test_without_folder_and_checkpoint_there_are_none(tmp_path):
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        tokenizers_of_run(RunDirectory(tmp_path))
