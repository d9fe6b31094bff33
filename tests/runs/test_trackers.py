"""Trackers: chosen by name, one identity over all starts of a run; those of others where their
libraries are installed."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from transformer_jax.config import ConfigError, from_dict
from transformer_jax.registry.plugins import registered
from transformer_jax.runs import trackers
from transformer_jax.runs.trackers import Trackers, group_of, run_id

CONFIG = from_dict({})


def log_twice(name: str, folder: Path) -> str:
    """What two starts of a run log, and the name under which the second one continues."""
    for step in (1, 2):
        tracker = registered("tracker")[name](folder, CONFIG, step - 1)
        tracker.write(step, {"train/loss": 1.0 / step})
        tracker.sync()
        tracker.close()
    return json.loads((folder / "trackers.json").read_text())[name]


def test_names_choose_and_the_log_itself_is_none_of_them(tmp_path):
    config = from_dict({"training": {"trackers": " jsonl, tensorboard"}})
    (tracker,) = Trackers(tmp_path, config, 0).trackers
    tracker.write(1, {"train/loss": 1.0})
    tracker.close()
    assert list(tmp_path.glob("events.*"))


def test_a_run_keeps_its_name_and_a_trial_belongs_to_its_sweep(tmp_path):
    names = iter("abc")
    assert [run_id(tmp_path, kind, lambda: next(names)) for kind in ("wandb", "wandb", "mlflow")] == ["a", "a", "b"]
    assert group_of(tmp_path / "table3" / "trials" / "0001") == "table3"
    assert group_of(tmp_path / "runs" / "m30k") is None


def test_a_library_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="wandb is not installed; pip install wandb"):
        Trackers(tmp_path, from_dict({"training": {"trackers": "wandb"}}), 0)


def test_an_error_fails_a_tracker_that_can_and_closes_the_others(tmp_path):
    called = []
    trackers = Trackers(tmp_path, from_dict({"training": {"trackers": "jsonl"}}), 0)
    older = SimpleNamespace(close=lambda: called.append("close"))
    trackers.trackers = [older, SimpleNamespace(fail=lambda: called.append("fail"), close=older.close)]
    with trackers:
        pass
    with pytest.raises(OSError, match="full"), trackers:
        raise OSError("full")
    assert called == ["close", "close", "fail", "close"]


ON_A_FULL_DISK = """
import pathlib, resource, sys
from transformer_jax.runs.metrics_log import MetricsLog
from transformer_jax.runs.trackers import TensorBoard
folder = pathlib.Path(sys.argv[1])
log, tensorboard = MetricsLog(folder / "metrics.jsonl", 0), TensorBoard(folder, None, 0)
for each in (log, tensorboard):
    each.write(1, {"train/loss": 1.0})
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
for call in (lambda: log.write(2, {"train/loss": 1.0}), log.close, tensorboard.close):
    try:
        call()
    except OSError as error:
        print(error.strerror)
"""


def test_a_log_on_a_full_disk_raises_and_is_no_traceback_at_the_end_of_the_process(tmp_path):
    command = [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("File too large\nFile too large\n", "")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_resumed_run_continues_under_its_name_at_weights_and_biases(monkeypatch, tmp_path):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    name = log_twice("wandb", tmp_path)
    assert len(list((tmp_path / "wandb").glob(f"offline-run-*-{name}"))) == 2


def test_a_tracker_of_an_example_names_its_file():
    # In another process: tests of the examples load them in this one.
    code = "from transformer_jax.config import from_dict; from_dict({'training': {'trackers': 'mlflow'}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    file = done.stderr.strip().rpartition("a plugin may add it: --plugin=")[2]
    assert (Path(__file__).parents[2] / file).is_file()
