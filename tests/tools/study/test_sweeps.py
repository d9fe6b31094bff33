"""Sweep files: what they state, and what is said about mistakes in them before any time is
spent."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from transformer_jax.config import ConfigError
from transformer_jax.tools.study import sweep_command
from transformer_jax.tools.study.sweeps import load_sweep
from transformer_jax.tools.study.worker_processes import gpu_environments

HEAD = """
from transformer_jax.tools.study.sweeps import Choice, Integers, LogUniform, Sweep, Uniform

def get_sweep():
    return """

HELD_OUT = 'overrides={"data.source": "text", "data.train": "a.en,a.de", "data.held_out": 9.0},'


def write(tmp_path, expression):
    file = tmp_path / "sweep.py"
    file.write_text(HEAD + expression)
    return str(file)


def test_rows_seeds_and_choices_are_all_combined(tmp_path):
    rows, space = '{"base": {}, "wide": {"model.d_ff": 512}}', '{"model.dropout": Choice(0.0, 0.2)}'
    options = f'overrides={{"model.d_ff": 32}}, rows={rows}, seeds=(0, 1), space={space}'
    sweep = load_sweep(write(tmp_path, f'Sweep(config="configs/quickstart.py", {options})'))
    points = sweep.points()
    assert len(points) == 8
    assert points[5] == {"row": "wide", "seed": 0, "model.dropout": 0.2}
    config = sweep.settings(points[5])
    assert (config.model.d_ff, config.seed, config.model.dropout) == (512, 0, 0.2)
    assert sweep.settings(points[0]).model.d_ff == 32


def test_the_command_line_changes_all_trials_and_chooses_rows(tmp_path):
    rows = '{"base": {}, "wide": {"model.d_ff": 512}, "odd": {"model.num_heads": 3}}'
    file = write(tmp_path, f'Sweep(config="configs/quickstart.py", overrides={{"seed": 5}}, rows={rows})')
    sweep = load_sweep(file, [("seed", "7"), ("model.d_ff", "16")], ["wide", "base"])
    configs = [sweep.settings(point) for point in sweep.points()]
    assert [(config.seed, config.model.d_ff) for config in configs] == [(7, 512), (7, 16)]
    with pytest.raises(ConfigError, match="--rows: no row 'wild'; did you mean wide"):
        load_sweep(file, [], ["wild"])
    with pytest.raises(ConfigError, match="model.d_f: unknown key"):
        load_sweep(file, [("model.d_f", "1")])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('space={"model.drop": Choice(0.1)}', "model.drop: unknown key; did you mean"),
        (
            'space={"model.dropout": Uniform(0, 1)}, sampler="tpe", trials=2',
            r"trial \{'model.dropout': 1.0\}: model.dropout",
        ),
        ('rows={"odd": {"model.num_heads": 3}}', r"trial \{'row': 'odd'\}: model.num"),
        ('overrides={"training.evaluate_every": 0}, seeds=(0,)', "training.evaluate_every: 0, so validation/bleu is"),
        (
            'metric="validation/loss", rows={"a": {}, "b": {"tokenizer.vocabulary_size": 900}}',
            "loss is not comparable between runs that differ in tokenizer.vocabulary_size; take validation/bleu",
        ),
        (
            'Sweep(config="word_vectors:quick", space={"model.negatives": Choice(2, 5)})',
            r"loss is not comparable between runs that differ in model.negatives; take validation/analogies \(with data.test",
        ),
        (f"{HELD_OUT} seeds=(0, 1)", "runs with different seed are not scored on the same text; set data.seed, which"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(tmp_path, expression, message):
    if "=" in expression and not expression.startswith("Sweep"):
        expression = f'Sweep(config="configs/quickstart.py", {expression})'
    with pytest.raises(ConfigError, match=message):
        load_sweep(write(tmp_path, expression))


def test_workers_share_the_gpus_of_a_host():
    assert gpu_environments(2, []) == [{}, {}]
    assert gpu_environments(1, ["0", "1"]) == [{}]
    two = [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]
    assert gpu_environments(2, ["0", "1", "2", "3"]) == two
    shared = gpu_environments(4, ["0", "7"])
    assert [variables["CUDA_VISIBLE_DEVICES"] for variables in shared] == ["0", "7", "0", "7"]
    assert {variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] for variables in shared} == {"0.450"}
    for workers, devices in ((3, "0123"), (3, "01")):
        with pytest.raises(ConfigError, match="do not divide; use 2"):
            gpu_environments(workers, list(devices))


def test_a_scratch_folder_is_private_and_belongs_to_nobody_else(monkeypatch, tmp_path):
    monkeypatch.setenv(sweep_command.SCRATCH, str(tmp_path / "scratch"))
    assert sweep_command.scratch_folder().stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr(Path, "lstat", lambda path: Mock(st_uid=1001))
    with pytest.raises(ConfigError, match="TRANSFORMER_JAX_SCRATCH: .*/scratch belongs to another user"):
        sweep_command.scratch_folder()
