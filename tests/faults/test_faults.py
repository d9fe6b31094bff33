"""A seeded slice of the fault campaign, and its judges."""

import random
from pathlib import Path

import pytest
from damage import cases, prepared, printed, verdict_of
from inputs import input_verdicts, table
from judges import NOT_STRUCK
from kinds import kinds
from run_steps import on_devices
from subjects import undisturbed_run

FAULTS = "files: parameters, flipped bit", "slow disk: slow, kill -9 within a write", "device count: 1 to 4 to 2"
FAULTS += ("termination: SIGTERM in validation",)


def test_bad_inputs_are_refused_with_the_expected_message(tmp_path):
    assert len(table()) >= 300
    verdicts = list(input_verdicts(tmp_path, 25, seed=1))
    assert [verdict for _, verdict in verdicts if not verdict.is_good] == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("campaign")
    with on_devices(1):
        undisturbed_run("transformer", root)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_happens_to_a_process_costs_nothing_but_time(undisturbed, fault):
    kind, name = fault.split(": ")
    with on_devices(1):
        verdict = kinds(seconds_to_end=300)[kind][name]("transformer", undisturbed, random.Random(5))
    # A run may be over before a signal comes; a damaged file and another number of devices always
    # count.
    may_miss = [NOT_STRUCK] if kind in ("slow disk", "termination") else []
    assert verdict.kind in ["resumed", *may_miss], verdict


@pytest.mark.slow
def test_damaged_files_of_a_run_are_told_or_harmless(tmp_path):
    bad = []
    with on_devices(1):
        reference = prepared(tmp_path)
        expected = {name: printed(name, reference)[1] for name in ("report", "translate")}
        for kind, damage, file in cases(["evaluation", "log", "scores"], reference, random.Random(5)):
            for name in expected:
                verdict, detail = verdict_of(name, tmp_path / "case", file, expected[name])
                if verdict not in ("told", "harmless"):
                    bad.append((verdict, name, kind, damage, detail))
    assert bad == []
