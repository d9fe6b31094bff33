"""A seeded slice of the fault campaign, and its judges."""

import importlib
import random
from pathlib import Path

import pytest
from run_steps import on_devices

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "faults"
FAULTS = "files: parameters, flipped bit", "slow disk: slow, kill -9 within a write", "device count: 1 to 4 to 2"
FAULTS += ("termination: SIGTERM in validation",)


def test_bad_inputs_are_refused_with_the_expected_message(script, tmp_path):
    inputs = script("inputs", "faults")
    assert len(inputs.table()) >= 300
    verdicts = list(inputs.input_verdicts(tmp_path, 25, seed=1))
    assert [verdict for _, verdict in verdicts if not verdict.is_good] == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("campaign")
    with pytest.MonkeyPatch.context() as patch, on_devices(1):
        patch.syspath_prepend(str(FOLDER))
        importlib.import_module("subjects").undisturbed_run("transformer", root)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_happens_to_a_process_costs_nothing_but_time(script, undisturbed, fault):
    kind, name = fault.split(": ")
    fault = script("kinds", "faults").kinds(seconds_to_end=300)[kind][name]
    with on_devices(1):
        verdict = fault("transformer", undisturbed, random.Random(5))
    # A run may be over before a signal comes; a damaged file and another number of devices always count.
    may_miss = [script("judges", "faults").NOT_STRUCK] if kind in ("slow disk", "termination") else []
    assert verdict.kind in ["resumed", *may_miss], verdict
