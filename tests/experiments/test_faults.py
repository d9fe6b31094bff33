"""A seeded slice of the fault campaign, its judges, and files with any content."""

import importlib
import json
import random
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_steps import on_devices

from transformer_jax.config import ConfigError, DataError, load_run_config
from transformer_jax.data.parallel_text import TextCorpus

FAULTS = Path(__file__).resolve().parents[2] / "experiments" / "faults"
CHANCES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


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
    """The folder of a run that nothing happened to."""
    root = tmp_path_factory.mktemp("campaign")
    with pytest.MonkeyPatch.context() as patch, on_devices(1):
        patch.syspath_prepend(str(FAULTS))
        importlib.import_module("undisturbed").undisturbed_run("transformer", root)
    return root


def test_a_flipped_bit_of_the_parameters_costs_nothing_but_time(faults, tmp_path, monkeypatch):
    """Of the smallest run: without validations, whose decoding would take most of the time to compile."""
    damage, subjects = faults("damage"), faults("subjects")
    subjects.TRAINING.update(num_updates=6, evaluate_every=0, checkpoint_every=2)
    for module in (damage, faults("undisturbed")):
        monkeypatch.setattr(module, "UPDATES", 6)
    with on_devices(1):
        verdict = damage.damaged("parameters", "flipped bit", "transformer", tmp_path, random.Random(5))
    assert verdict.kind == "resumed", verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("signals", "kill -9"),
        ("clock", "back"),
        ("slow disk", "slow, kill -9 within a write"),
        ("termination", "SIGTERM in validation"),
        ("device count", "1 to 4 to 2"),
        ("database", "away at the start"),
    ],
)
def test_what_happens_to_a_process_costs_nothing_but_time(faults, undisturbed, kind, name):
    if kind == "database" and (problem := faults("database_server").missing()):
        pytest.skip(problem)
    fault = faults("kinds").kinds(seconds_to_end=300)[kind][name]
    with on_devices(1):
        verdict = fault("transformer", undisturbed, random.Random(5))
    # A run may be over before a signal comes.
    spared = [] if kind == "database" else [faults("judges").NOT_STRUCK]
    assert verdict.kind in ["resumed", *spared], verdict


@pytest.mark.slow
def test_faults_at_random_cost_nothing_but_time(faults, undisturbed):
    known, rng = faults("kinds").kinds(30), random.Random(3)
    with on_devices(1):
        verdicts = [
            (name, known["files"][name]("transformer", undisturbed, rng))
            for _, name in islice(faults("run").plan(rng, {"files": known["files"]}), 20)
        ]
    assert [verdict for verdict in verdicts if not verdict[1].is_good] == []


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
