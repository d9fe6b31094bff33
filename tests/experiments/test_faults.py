"""A seeded slice of the fault campaign, and its judges, who must see what they forbid."""

import importlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
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


def test_kinds_take_turns_and_no_fault_comes_again_before_all_have(faults):
    known = faults("kinds").kinds(30)
    drawn = list(islice(faults("run").plan(random.Random(0), known), len(known) * 84))
    assert [kind for kind, _ in drawn[: len(known)]] == list(known)
    for kind, named in known.items():
        assert {name for each, name in drawn if each == kind} == set(named)
        assert all(callable(fault) for fault in named.values())
    files = [name for kind, name in drawn if kind == "files"]
    assert len(files) == len(set(files)) == len(known["files"])


def injected(code: str, **environment: str) -> subprocess.CompletedProcess:
    variables = os.environ | {"PYTHONPATH": str(FAULTS / "injected")} | environment
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)


def test_the_time_of_day_jumps_and_the_monotonic_clock_does_not():
    code = (
        "import time; one = time.time(), time.monotonic(); time.sleep(0.3); two = time.time(), time.monotonic(); "
        "print(*(round(after - before) for before, after in zip(one, two)))"
    )
    assert injected(code, FAULT_CLOCK="0.2,-7200").stdout.split() == ["-7200", "0"]


def test_a_kill_within_a_slow_write_leaves_half_of_it(tmp_path):
    code = "file = open('half', 'w'); file.write('x' * 100); file.close()"
    ended = injected(f"import os; os.chdir({str(tmp_path)!r}); {code}", FAULT_SLOW="0.01,1")
    assert (ended.returncode, (tmp_path / "half").read_text()) == (-signal.SIGKILL, "x" * 50)
    whole = injected(f"import os; os.chdir({str(tmp_path)!r}); {code}; print(open('half').read())", FAULT_SLOW="0.01,0")
    assert whole.stdout == "x" * 100 + "\n"


CLOCK = """
import sys, time, types
class Clock:
    kind = "step"
    def turn_to(self, new):
        self.kind = new
clocks = types.ModuleType("transformer_jax.runs.goodput")
clocks.Clock = Clock
sys.modules[clocks.__name__] = clocks
time.sleep(0.1)
clock = Clock()
for _ in range(2):
    print("turn", flush=True)
    clock.turn_to("checkpoint")
    time.sleep(0.2)
    clock.turn_to("step")
"""


def test_sigterm_comes_in_the_phase_that_was_asked_for(tmp_path):
    ended = injected(CLOCK, FAULT_SIGTERM=f"checkpoint,2,0.0,{tmp_path / 'moment'}")
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "turn\nturn\n")
    assert 0 < float((tmp_path / "moment").read_text()) <= time.monotonic()
    never = injected(CLOCK, FAULT_SIGTERM=f"evaluation,1,0.0,{tmp_path / 'never'}")
    assert never.returncode == 0
    assert not (tmp_path / "never").exists()


def test_other_devices_may_change_the_rounding_and_not_the_batches(faults):
    differ = faults("judges").differ_beyond_rounding
    one = [{"step": 1, "train/loss": 4.0, "train/target_tokens": 96.0}]
    assert differ(one, [{"step": 1, "train/loss": 4.000001, "train/target_tokens": 96.0}]) == ""
    assert "train/loss" in differ(one, [{"step": 1, "train/loss": 4.02, "train/target_tokens": 96.0}])
    assert "train/target_tokens" in differ(one, [{"step": 1, "train/loss": 4.0, "train/target_tokens": 96.001}])
    assert differ(one, []) == "other records"
    assert differ(one, [{"step": 2, "train/loss": 4.0, "train/target_tokens": 96.0}])


def test_the_survivor_of_two_processes_must_say_that_it_lost_the_other(faults):
    judge_end, killed = faults("two_processes").judge_end, (-9, "")
    frames = "*** Check failure stack trace: ***\n    @     0x7f  std::f()\n"
    sentence = "transformer-jax: process 0 ends, most likely because another one did\n"
    assert judge_end("kill -9", (75, sentence), killed).is_good
    assert judge_end("kill -9", (75, frames + sentence), killed).is_good
    assert judge_end("kill -9", (75, frames), killed).kind == "traceback"
    assert judge_end("kill -9", (75, f"Traceback (most recent call last):\n{sentence}"), killed).kind == "traceback"
    assert judge_end("kill -9", (75, ""), killed).kind == "wrong"
    assert judge_end("kill -9", (-6, sentence), killed).kind == "wrong"
    assert judge_end("SIGTERM", (0, ""), killed).kind == "wrong"
    assert judge_end("SIGTERM", (0, ""), (0, "")).is_good


def test_a_sweep_with_a_trial_that_is_not_complete_is_lost(faults, tmp_path):
    sweeps = faults("two_trials")
    (tmp_path / "leaderboard.csv").write_text("row,state,folder\nbase,complete,a\nslow,running,b\n")
    assert sweeps.judge_sweep(0, "", tmp_path, tmp_path).kind == "lost"
    assert sweeps.judge_sweep(2, "transformer-jax: no study\n", tmp_path, tmp_path).kind == "refused"
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "host-0.log").write_text("Traceback (most recent call last):\n")
    assert sweeps.judge_sweep(0, "", tmp_path, tmp_path).kind == "traceback"


def test_a_crashed_server_cannot_be_reached_until_it_is_started_again(faults):
    database = faults("database_server")
    if database.missing():
        pytest.skip(database.missing())

    def reached(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with database.DatabaseServer() as server:
        port = int(re.search(r":(\d+)/", server.address)[1])
        assert reached(port)
        server.crash()
        assert not reached(port)
        server.start()
        assert reached(port)


def test_without_a_server_nothing_is_struck(faults, monkeypatch, tmp_path):
    database = faults("database")
    monkeypatch.setattr(database, "missing", lambda: "PostgreSQL is not installed")
    for fault in database.DATABASE_FAULTS.values():
        assert fault("transformer", tmp_path, random.Random(0)).kind == faults("judges").NOT_STRUCK


def test_what_met_nothing_is_neither_good_nor_counted(faults, tmp_path):
    judges = faults("judges")
    (tmp_path / "half").mkdir()
    assert faults("damage").damage_one(tmp_path / "half", "log", "removed", random.Random(0)) == ""
    campaign = faults("campaign").Campaign(0, tmp_path / "counts.json")
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
