"""The page of a trained run, from the command line."""

import json
import re

import pytest

from transformer_jax.__main__ import main

pytestmark = pytest.mark.slow


def data_of(path):
    match = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(match[1])


def test_a_given_translation_is_read(run, tmp_path):
    output = tmp_path / "page.html"
    for name, line in (("gold", "0-0 1-1"), ("en", "a b"), ("de", "b a")):
        (tmp_path / name).write_text(f"{line}\n")
    gold = [f"--gold={tmp_path}/gold", f"--gold_source={tmp_path}/en", f"--gold_target={tmp_path}/de"]
    flags = ["--text=a b 猫", "--translation=b a", "--nosearch", "--live", "--split=validation", "--sentences=4"]
    assert main(["explore", f"--workdir={run}", *flags, *gold, f"--output={output}"]) == 0
    data = data_of(output)
    (alignment,) = (table for table in data["statistics"] if table["title"] == "alignment error rate")
    assert alignment["source"] == "1 pairs of gold"
    assert {rate for layer in alignment["values"] for rate in layer} <= {0.0, 0.5, 1.0}
    others = [table for table in data["statistics"] if table is not alignment]
    assert {table["kind"] for table in others} == {"encoder", "decoder", "cross"}
    assert {table["source"] for table in others} == {"averages over the first 4 of validation"}
    (reading,) = data["readings"]
    assert reading["translation"] == "b a"
    assert reading["remarks"] == ["this text has characters or words that the model never saw in training: 猫"]
    assert data["model"]["training"]["limit"] > 5
    assert len(reading["logProbs"]) == len(reading["tokens"]["target"])
    assert sorted(reading["gradients"]) == ["cross", "decoder"]
    model = data["model"]
    assert model["bits"] == 16 and 0 < model["logitsError"] < 0.02
    assert f'id="block-{model["block"]}"' in output.read_text()
