"""The page of a trained run, from the command line."""

import json
import re
import socket

import pytest

from transformer_jax.__main__ import main

pytestmark = pytest.mark.slow


def data_of(path):
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found[1])


def test_a_given_translation_is_read(run, tmp_path):
    output = tmp_path / "page.html"
    for name, line in (("gold", "0-0 1-1"), ("en", "a b"), ("de", "b a")):
        (tmp_path / name).write_text(f"{line}\n")
    gold = [f"--gold={tmp_path}/gold", f"--gold_source={tmp_path}/en", f"--gold_target={tmp_path}/de"]
    flags = ["--text=a b", "--target=b a", "--nosearch", "--live", "--split=validation", "--sentences=4"]
    assert main(["explore", f"--workdir={run}", *flags, *gold, f"--output={output}"]) == 0
    data = data_of(output)
    (alignment,) = (each for each in data["statistics"] if each["title"] == "alignment error rate")
    assert alignment["source"] == "1 pairs of gold"
    assert {rate for layer in alignment["values"] for rate in layer} <= {0.0, 0.5, 1.0}
    others = [each for each in data["statistics"] if each is not alignment]
    assert {each["kind"] for each in others} == {"encoder", "decoder", "cross"}
    assert {each["source"] for each in others} == {"averages over the first 4 of validation"}
    (reading,) = data["readings"]
    assert reading["translation"] == "b a"
    assert len(reading["logProbs"]) == len(reading["tokens"]["target"])
    assert sorted(reading["gradients"]) == ["cross", "decoder"]
    model = data["model"]
    assert model["bits"] == 16 and 0 < model["logitsError"] < 0.02
    assert f'id="block-{model["block"]}"' in output.read_text()


def test_what_cannot_be_is_told(run, tmp_path, capsys):
    taken = socket.create_server(("127.0.0.1", 0))
    cases = [
        ([], "--text: give a text, or --texts=FILE"),
        (["--text=a", "--target=b", "--target=c"], "--target: 2 for 1 texts"),
        (["--text=a", f"--text={'a ' * 4999}"], "--text 2: "),
        (["--text=a", f"--against={tmp_path}"], "not a run directory"),
        (["--text=a", "--live", "--serve"], "--live: the page computes by itself"),
        (["--text=a", "--checkpoints=last"], "--checkpoints: 1 of"),
        (["--text=a", "--gold=links"], "--gold: give --gold_source and --gold_target too"),
        (["--text=a", "--serve", f"--port={taken.getsockname()[1]}"], "cannot be used on 127.0.0.1"),
    ]
    for flags, message in cases:
        assert main(["explore", f"--workdir={run}", *flags]) == 2
        assert message in capsys.readouterr().err
    taken.close()
