"""The goodput of a run, from its own files and the counts of preflight."""

import json
from types import SimpleNamespace

import pytest

from transformer_jax.runs.goodput import KINDS
from transformer_jax.tools.preflight.chips import CHIPS, Topology
from transformer_jax.tools.preflight.run_goodput import run_goodput

PEAK = CHIPS["v5e"].peak("bfloat16")
# 40 % of the peak of two chips at the run's 1,000 target tokens a second.
PROGRAM = SimpleNamespace(
    name="train_step", model_flops=64 * 0.4 * 2 * PEAK / 1000, positions=64, compute_dtype="bfloat16"
)


@pytest.fixture
def folder(tmp_path):
    seconds = dict.fromkeys(KINDS, 0.0) | {"step": 50.0, "data_wait": 20.0, "lost": 30.0}
    sheet = {"step": 50, "seconds": seconds, "goodput": 0.5, "scheduling_goodput": 0.8}
    (tmp_path / "goodput.json").write_text(json.dumps(sheet))
    (tmp_path / "run.json").write_text(json.dumps(2 * [{"devices": ["TPU v5e:0", "TPU v5e:1"]}]))
    (tmp_path / "metrics.jsonl").write_text(
        "".join(f'{{"step": {step}, "train/target_tokens": {step * 1000}}}\n' for step in (25, 40))
    )
    return tmp_path


def topology(devices=2, chip=CHIPS["v5e"]):
    return Topology("v5e:1x2", [None] * devices, chip)


@pytest.mark.parametrize("file", ["", "config.json"])
def test_goodput_is_the_product_of_its_three_factors(file, folder, monkeypatch):
    """The ten updates after the last line of the log have its mean."""
    monkeypatch.setenv("HOME", str(folder.parent))
    rate, product = run_goodput(f"~/{folder.name}/{file}", PROGRAM, topology()).lines()[1:]
    assert rate.endswith(": 1,000 target tokens/s in updates; other time: data wait 20.0%, lost 30.0%")
    assert product == "goodput 16.0% = scheduling 80.0% x runtime 50.0% x program 40.0% (MFU)"


@pytest.mark.parametrize(
    ("described", "reason"),
    [(topology(chip=None), "speed of these devices is not known"), (topology(4), "the run has 2 devices, v5e:1x2 4")],
)
def test_unknown_program_goodput_says_why(folder, described, reason):
    last = run_goodput(str(folder), PROGRAM, described).lines()[-1]
    assert last.startswith("goodput = scheduling 80.0% x runtime 50.0% x program (unknown: ") and reason in last


def test_seconds_on_other_devices_have_no_peak(folder):
    (folder / "run.json").write_text(json.dumps([{"devices": ["a"]}, {"devices": ["a", "b"]}]))
    found = run_goodput(str(folder), PROGRAM, topology())
    assert (found.program, found.unknown) == (None, "the run has 1 and 2 devices, v5e:1x2 2")


def test_a_folder_without_a_run_and_other_programs_have_no_goodput(folder, tmp_path):
    assert run_goodput(str(tmp_path / "none"), PROGRAM, topology()) is None
    assert run_goodput(str(folder), SimpleNamespace(name="search"), topology()) is None
