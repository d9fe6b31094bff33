"""A seeded slice of the fault campaign, and its judges, who must see what they forbid."""

import importlib
import json
import random
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from process_environment import process_environment
from run_steps import on_devices

from transformer_jax.config import ConfigError, DataError, load_run_config
from transformer_jax.data.text_files import TextCorpus

FAULTS = Path(__file__).resolve().parents[2] / "experiments" / "faults"
CHANCES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def faults(monkeypatch):
    monkeypatch.syspath_prepend(str(FAULTS))
    yield importlib.import_module
    for name in [
        name for name, module in list(sys.modules.items()) if str(FAULTS) in str(getattr(module, "__file__", ""))
    ]:
        del sys.modules[name]


def test_bad_inputs_are_refused_with_the_expected_message(faults, tmp_path):
    inputs = faults("inputs")
    assert len(inputs.table()) >= 300
    verdicts = list(inputs.input_verdicts(tmp_path, 40, seed=1))
    assert [verdict for _, verdict in verdicts if not verdict.is_good] == []


@pytest.mark.slow
def test_all_bad_inputs_are_refused(faults, tmp_path):
    verdicts = list(faults("inputs").input_verdicts(tmp_path, 2000, seed=2))
    assert [verdict for _, verdict in verdicts if not verdict.is_good] == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """A run that nothing happened to, and a copy of it as of two thirds."""
    root = tmp_path_factory.mktemp("campaign")
    (root / "transformer").mkdir()
    with pytest.MonkeyPatch.context() as patch, on_devices(1):
        patch.syspath_prepend(str(FAULTS))
        importlib.import_module("run").undisturbed_run("transformer", root / "transformer")
    return root


def test_a_flipped_bit_of_the_parameters_costs_nothing_but_time(faults, tmp_path, monkeypatch):
    """Of the smallest run: without validations, whose decoding would take most of the time to compile."""
    run, subjects = faults("run"), faults("subjects")
    subjects.TRAINING.update(num_updates=6, evaluate_every=0, checkpoint_every=2)
    monkeypatch.setattr(run, "UPDATES", 6)
    (tmp_path / "transformer").mkdir()
    with on_devices(1):
        run.undisturbed_run("transformer", tmp_path / "transformer")
        verdict = run.damaged("transformer", tmp_path, "parameters", "flipped bit", random.Random(5))
    assert verdict.kind == "resumed", verdict


@pytest.mark.slow
def test_kill_9_costs_nothing_but_time(faults, undisturbed, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", process_environment()["XLA_FLAGS"])
    run = faults("run")
    with on_devices(1):
        verdict = run.disturbed("transformer", undisturbed, "kill -9", random.Random(5), seconds=20)
    assert verdict.kind in ("resumed", run.NOT_STRUCK), verdict


@pytest.mark.slow
def test_faults_at_random_cost_nothing_but_time(faults, undisturbed):
    run, rng = faults("run"), random.Random(3)
    with on_devices(1):
        verdicts = [
            (kind, fault, run.damaged("transformer", undisturbed, kind, fault, rng))
            for kind, fault in islice(run.plan(rng, 0), 20)
        ]
    assert [verdict for verdict in verdicts if not verdict[2].is_good] == []


def test_what_met_nothing_is_neither_good_nor_counted(faults, tmp_path):
    run, judges = faults("run"), faults("judges")
    (tmp_path / "half").mkdir()
    assert faults("damage").damage_one(tmp_path / "half", "log", "removed", random.Random(0)) == ""
    campaign = run.Campaign(0, tmp_path / "counts.json")
    campaign.note("log", "transformer, removed", judges.Verdict(judges.NOT_STRUCK))
    campaign.note("log", "transformer, removed", judges.Verdict("hang", "for ever"))
    assert "| log | 1 | 0 | 0 | 0 | 0 | 1 | 0 | 1 |" in json.loads((tmp_path / "counts.json").read_text())["table"]
    assert campaign.bad == [["log", "transformer, removed", "hang", "for ever"]]


def test_a_command_that_never_ends_is_a_hang(faults, monkeypatch):
    one_command = faults("one_command")
    monkeypatch.setattr(one_command, "main", lambda arguments: time.sleep(30))
    with pytest.raises(one_command.Hanging):
        one_command.run_command_here(["train"], seconds=0.05)
    assert one_command.run_command_here.__module__ in sys.modules


def test_the_judges_see_what_they_forbid(faults, tmp_path):
    judges = faults("judges")
    assert judges.judge_refusal(2, "transformer-jax: a is b\n").is_good
    assert judges.judge_refusal(1, "Traceback (most recent call last):\n").kind == "traceback"
    assert judges.judge_refusal(1, "").kind == "traceback"
    assert judges.judge(0, "", tmp_path, tmp_path, 4).kind == "lost"
    inputs = faults("inputs")
    unexpected = inputs.BadInput("flag", ("nonsense",), "another message")
    assert inputs.verdict_of(unexpected, tmp_path / "a").kind == "wrong"


@CHANCES
@given(content=st.binary(max_size=200))
def test_any_bytes_as_a_table_are_pairs_or_a_sentence(tmp_path, content):
    (tmp_path / "train.tsv").write_bytes(content)
    try:
        pairs = list(TextCorpus(str(tmp_path), "en", "de").pairs("train"))
    except DataError as error:
        assert "train.tsv" in str(error)
    else:
        assert len(pairs) == content.count(b"\n") + (not content.endswith(b"\n"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["config", "model", "seed", "a"]), inner)
    ),
    max_leaves=8,
)


@CHANCES
@given(content=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()) | st.just(b"[" * 90_000))
def test_any_bytes_as_settings_are_settings_or_a_sentence(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_run_config(tmp_path)
