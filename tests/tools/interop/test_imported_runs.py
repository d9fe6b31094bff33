"""Runs that were imported, in the commands of runs that were trained here."""

import json
from dataclasses import replace

import numpy as np
import pytest
from libraries import library
from tools.interop.small_models import TEXTS, opened, small_model

from transformer_jax.__main__ import main
from transformer_jax.runs.checkpoint_tools import read_parameters
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tools.interop import marian_export

library("safetensors", "export")

DATA = ("data.generated_pairs=300", "data.max_source_tokens=47", "data.max_target_tokens=47")
SHORT = ("batching.tokens_per_update=512", "decoding.max_extra_tokens=4", "training.num_updates=2")


def imported(folder, scale=1.0):
    """The run of a Marian folder whose embedding is ``scale`` times that of a small model."""
    made = small_model(norm_epsilon=1e-5)
    table = {"source_embedding/table": made.named["source_embedding/table"] * np.float32(scale)}
    (folder / "marian").mkdir(parents=True)
    marian_export.export(opened(replace(made, named=made.named | table)), folder / "marian")
    flags = [f"--config.{each}" for each in (*DATA, *SHORT, f"data.cache_directory={folder}/cache")]
    run = folder / "run"
    assert main(["import", "--format=huggingface", f"--input={folder}/marian", f"--workdir={run}", *flags]) == 0
    return run


@pytest.mark.slow
def test_two_runs_of_one_vocabulary_are_an_ensemble(tmp_path):
    first, second = (imported(tmp_path / name, scale) for name, scale in (("first", 1), ("second", 2)))
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))

    def translations(run, *others):
        flags = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out.txt", "--config.decoding.beam_width=1"]
        assert main(["translate", f"--workdir={run}", *flags, *(f"--ensemble={other}" for other in others)]) == 0
        return (tmp_path / "out.txt").read_text().splitlines()

    alone = translations(first)
    assert translations(first, first) == alone
    assert translations(first, second) != alone
    assert len(alone) == len(TEXTS)


@pytest.mark.slow
def test_an_imported_run_is_fine_tuned(tmp_path):
    run = imported(tmp_path / "source")
    tuned = tmp_path / "tuned"
    flags = [f"--config.init.run={run}", "--config.optimizer.freeze=^encoder_"]
    assert main(["train", f"--config={run}", f"--workdir={tuned}", *flags]) == 0
    before, after = (read_parameters(RunDirectory(folder), "last")[1] for folder in (run, tuned))
    for name, leaf in before.items():
        assert np.array_equal(after[name], leaf) == name.startswith("encoder_"), name
    assert json.loads((tuned / "run.json").read_text())[0]["initial_parameters"]["run"] == str(run)
