"""Runs that are killed between two checkpoints of their run directory, and resume from local ones."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from process_environment import ends, launch
from run_settings import UPDATES, tiny_config
from run_steps import KILL_AFTER_LOCAL_SAVE, assert_same_run, metrics_of, parameters_of, train, write_recipe

from transformer_jax.config import ExperimentConfig, MeshConfig
from transformer_jax.runs.run import TrainingRun

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def scratch(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("TRANSFORMER_JAX_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def settings(cache: Path, **training: object) -> ExperimentConfig:
    return tiny_config(cache, checkpoint_every=6, local_checkpoint_every=2, **training)


def on_two(cache: Path) -> ExperimentConfig:
    """Each process holds half of every array."""
    return replace(settings(cache, evaluate_every=0), mesh=MeshConfig(data=1, fsdp=4, tensor=1))


def train_on_two(cache: Path, folder: Path, extra: str = "") -> list[tuple[int, str]]:
    recipe = write_recipe(on_two(cache), folder, extra)
    return ends(
        launch("train", f"--config={recipe}", folder=folder, devices=2, JAX_ENABLE_COMPILATION_CACHE="true"), 600
    )


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory) -> Path:
    """What two processes trained undisturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_SCRATCH", str(folder.parent / "scratch"))
        assert [status for status, _ in train_on_two(cache, folder)] == [0, 0]
    return folder


@pytest.mark.parametrize(
    ("lost", "resumed", "line"),
    [
        ("", 10, "restored local checkpoint 10 in"),
        ("local-*/1", 6, "local checkpoint 10, 8 not used: not on all hosts"),
    ],
)
def test_two_killed_processes_resume_from_the_nearest_copy_that_both_have(
    whole, cache, scratch, tmp_path, lost, resumed, line
):
    folder = tmp_path / "run"
    assert [status for status, _ in train_on_two(cache, folder, KILL_AFTER_LOCAL_SAVE.format(step=10))] == [-9, -9]
    assert {each.name for each in (folder / "checkpoints").iterdir()} == {"0", "6"}
    for each in scratch.glob(lost) if lost else ():
        shutil.rmtree(each)
    (first, said), (second, _) = train_on_two(cache, folder)
    assert (first, second) == (0, 0), said
    assert line in said and f"resumed at update {resumed}" in said
    assert metrics_of(folder) == metrics_of(whole)
    ours, theirs = (parameters_of(each, settings(cache), UPDATES) for each in (folder, whole))
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(left, right)
    assert not list(scratch.glob("local-*"))


def test_one_process_resumes_to_the_bit_but_not_a_run_that_is_started_anew(cache, scratch, tmp_path, capfd):
    def die_after(update: int) -> Callable[[TrainingRun], None]:
        def die(run: TrainingRun) -> None:
            if run.number == update:
                raise RuntimeError("killed")

        return die

    config, folder = settings(cache, patience=3), tmp_path / "run"
    assert train(config, tmp_path / "whole").reason == "finished"
    with pytest.raises(RuntimeError, match="killed"):
        train(config, folder, callbacks=[die_after(11)])
    assert sorted(each.name for each in scratch.glob("local-*/0/*")) == ["10", "8"]
    shutil.copytree(scratch, tmp_path / "kept")
    assert train(config, folder).reason == "finished"
    assert "resumed at update 10" in capfd.readouterr().err and not list(scratch.iterdir())
    assert_same_run(tmp_path / "whole", folder, config)

    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "kept", scratch, dirs_exist_ok=True)
    with pytest.raises(RuntimeError, match="killed"):
        train(config, folder, callbacks=[die_after(1)])
    assert train(config, folder).reason == "finished"
    assert "local checkpoint 10, 8 not used: of another run" in capfd.readouterr().err
    assert_same_run(tmp_path / "whole", folder, config)
