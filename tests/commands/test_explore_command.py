"""The page of a trained run, from the command line."""

import json
import re
import socket

import pytest

from transformer_jax.__main__ import main
from transformer_jax.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow


def data_of(path):
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found[1])


def test_a_page_of_two_texts_and_two_checkpoints(run, tmp_path, capsys):
    output = tmp_path / "page.html"
    flags = ["--text=a b c d", "--text=d c b a", f"--against={run}:10", f"--output={output}", "--nogradients"]
    assert main(["explore", f"--workdir={run}", "--checkpoint=last", *flags]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    data = data_of(output)
    assert [each["detail"] for each in data["runs"]] == ["update 30", "update 10"]
    assert sorted((each["text"], each["run"]) for each in data["readings"]) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert data["readings"][0]["gradients"] == {}
    assert "http://" not in output.read_text().replace("http://www.w3.org/2000/svg", "")


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


def test_the_checkpoints_of_a_run(run, tmp_path):
    output = tmp_path / "page.html"
    flags = ["--text=a b c d", "--nosearch", "--nogradients", "--checkpoints=all", f"--output={output}"]
    assert main(["explore", f"--workdir={run}", "--checkpoint=last", *flags]) == 0
    data = data_of(output)
    updates = data["checkpoints"]["updates"]
    assert list(updates.values()) == RunDirectory(run).checkpoint_steps()
    assert {each["translation"] for each in data["readings"]} == {data["readings"][0]["translation"]}
    weights = {each["run"]: each["attentions"][0]["weights"][0] for each in data["readings"]}
    before = [weights[int(number)].get("before") for number in updates]
    assert before == [None, *(weights[int(number)]["block"] for number in list(updates)[:-1])]
    titles = [(each["kind"], each["title"].split()[0]) for each in data["checkpoints"]["curves"]]
    assert titles == [(kind, name) for kind in ("encoder", "decoder", "cross") for name in ("entropy", "importance:")]


def test_what_cannot_be_is_told(run, tmp_path, capsys):
    taken = socket.create_server(("127.0.0.1", 0))
    cases = [
        ([], "--text: give a text, or --texts=FILE"),
        (["--text= "], "none of them may be empty"),
        (["--text=a", "--target=b", "--target=c"], "--target: 2 for 1 texts"),
        (["--text=a", f"--text={'a ' * 4999}"], "--text 2: "),
        (["--text=a", f"--output={tmp_path}/page.png"], "end it in .html"),
        (["--text=a", f"--against={tmp_path}"], "not a run directory"),
        (["--text=a", "--live", "--serve"], "--live: the page computes by itself"),
        (["--text=a", "--checkpoints=1,2"], "no checkpoint '1'"),
        (["--text=a", "--checkpoints=last"], "--checkpoints: 1 of"),
        (["--text=a", "--checkpoints=all", "--serve"], "--checkpoints: the server reads with one"),
        (["--text=a", "--nosearch", "--alternatives=3"], "--alternatives: only --search reads it; give --search too"),
        (["--text=a", "--serve", "--port=0", "--output=x.html"], "--output: --serve writes no page"),
        (["--text=a", "--gold=links"], "--gold: give --gold_source and --gold_target too"),
        (["--text=a\udcff"], r"--text: 'a\udcff' is not valid UTF-8"),
        (["--text=a", "--serve", f"--port={taken.getsockname()[1]}"], "cannot be used on 127.0.0.1"),
    ]
    for flags, message in cases:
        assert main(["explore", f"--workdir={run}", *flags]) == 2
        assert message in capsys.readouterr().err
    taken.close()
