"""Evaluate, translate and look at a trained run, through the command line."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.__main__ import main
from transformer_jax.checkpoint_tools.difference import read_parameters
from transformer_jax.checkpoints import Checkpoints
from transformer_jax.config import from_dict
from transformer_jax.run_directory import RunDirectory
from transformer_jax.training_session import train

LEARNING = {"num_updates": 30, "evaluate_every": 10, "checkpoint_every": 10, "log_every": 10}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    settings = tiny_settings(tmp_path_factory.mktemp("cache"), **LEARNING)
    # Eight devices here; the processes below have one, and look at the run all the same.
    settings["mesh"] = {"data": 2, "fsdp": 2, "tensor": 2}
    assert train(from_dict(settings), str(folder)) == 0
    return folder


def test_evaluate_prints_a_table_and_writes_json_and_every_line(run, capsys):
    assert main(["evaluate", f"--workdir={run}", "--checkpoint=last", "--average=3", "--examples=2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nreference ") == 2
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in printed
    report = json.loads((run / "evaluation-test-30-average3.json").read_text())
    assert report["num_sentences"] == 500
    assert report["averaged_checkpoints"] == 3
    assert 0 <= report["scores"]["bleu"] <= 100
    assert (run / "evaluation-test-30-average3.txt").read_text().count("\n") == 500


def test_evaluate_measures_what_training_measured(run, capsys):
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = next(record for record in logged if record["step"] == 30 and "validation/loss" in record)
    main(["evaluate", f"--workdir={run}", "--split=validation", "--checkpoint=30", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["num_sentences"] == 500
    # Training looked at the first eight sentences only.
    assert report["loss"] == pytest.approx(logged["validation/loss"], rel=0.5)


def translate(run: Path, text: bytes, *flags: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "transformer_jax", "translate", f"--workdir={run}", "--checkpoint=last", *flags]
    environment = {**os.environ, "XLA_FLAGS": ""}
    return subprocess.run(command, input=text, capture_output=True, env=environment, check=False, timeout=300)


def test_translate_keeps_lines_and_their_order(run):
    result = translate(run, "a b c\n\nd e\u2028f\n   \ng".encode())
    assert result.returncode == 0, result.stderr.decode()
    lines = result.stdout.decode().split("\n")
    assert len(lines) == 6
    assert lines[1] == lines[3] == lines[5] == ""


def test_translate_gives_n_best_lists_with_scores(run):
    result = translate(run, b"a b c\nd e\n", "--n-best=2")
    rows = [line.split("\t") for line in result.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert float(rows[0][1]) >= float(rows[1][1])


def test_translate_answers_a_pipe_before_it_is_closed(run):
    command = [sys.executable, "-m", "transformer_jax", "translate", f"--workdir={run}", "--checkpoint=last"]
    environment = {**os.environ, "XLA_FLAGS": ""}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        for text in (b"a b c\n", b"c b\na\n"):
            process.stdin.write(text)
            process.stdin.flush()
            # Would wait for ever if the command waited for the end.
            assert [process.stdout.readline()[-1:] for _ in range(text.count(b"\n"))] == [b"\n"] * text.count(b"\n")
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_translate_answers_whole_lines_though_a_part_of_the_next_follows(run):
    lines = b"a b c\n" * 11_000  # More than is read at once, so that the part comes alone.
    flags = [f"--workdir={run}", "--checkpoint=last", "--config.decoding.batch_tokens=65536", "--lines_at_once=20000"]
    command = [sys.executable, "-m", "transformer_jax", "translate", *flags]
    environment = {**os.environ, "XLA_FLAGS": ""}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        process.stdin.write(lines + b"a b")
        process.stdin.flush()
        for _ in range(11_000):
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_translate_reads_files_as_training_does(run, tmp_path):
    """Plain or compressed, with the byte order mark and the line ends of Windows."""
    text = b"a b\nc d\n"
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "windows").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    (tmp_path / "zipped.gz").write_bytes(gzip.compress(text))
    found = []
    for name in ("plain", "windows", "zipped.gz"):
        flags = [f"--workdir={run}", "--checkpoint=last", f"--input={tmp_path / name}", f"--output={tmp_path / 'out'}"]
        assert main(["translate", *flags]) == 0
        found.append((tmp_path / "out").read_bytes())
    assert found[0] == found[1] == found[2]
    assert translate(run, b"\xef\xbb\xbf" + text).stdout == found[0]


def test_translate_refuses_what_memory_cannot_hold(run):
    result = translate(run, b"a b\n" + b" ".join(50 * [b"a"]), "--config.decoding.max_source_tokens=40")
    assert result.returncode == 2
    assert b"standard input, line 2: 50 tokens are more than decoding.max_source_tokens=40" in result.stderr
    assert result.stdout.count(b"\n") == 1


def test_translate_leaves_its_input_and_what_it_cannot_replace(run, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("a b\n")
    for source, message in ((file, "is what --input reads"), (tmp_path / "nowhere", "cannot be read")):
        assert main(["translate", f"--workdir={run}", f"--input={source}", f"--output={file}"]) == 2
        assert message in capsys.readouterr().err
        assert file.read_text() == "a b\n"


def test_another_search_is_another_file(run):
    assert main(["evaluate", f"--workdir={run}", "--checkpoint=20", "--config.decoding.beam_width=1"]) == 0
    assert (run / "evaluation-test-20-beam_width=1.json").is_file()
    assert not (run / "evaluation-test-20.json").exists()


def test_align_links_every_target_word(run, tmp_path, capsys):
    (tmp_path / "source").write_text("a b c\n\nd e f g\n")
    (tmp_path / "target").write_text("a b c\n\nd e\n")
    (tmp_path / "gold").write_text("0-0 1-1 2?2\n\n0-0\n")
    files = [f"--source={tmp_path / 'source'}", f"--target={tmp_path / 'target'}", f"--gold={tmp_path / 'gold'}"]
    flags = [f"--workdir={run}", "--checkpoint=last", f"--output={tmp_path / 'out'}"]
    assert main(["align", *flags, *files, "--layer=1", "--head=2"]) == 0
    assert "alignment error rate" in capsys.readouterr().out
    lines = (tmp_path / "out.pharaoh").read_text().split("\n")
    targets = [sorted(int(link.partition("-")[2]) for link in line.split()) for line in lines]
    assert targets == [[0, 1, 2], [], [0, 1], []]
    saved = np.load(tmp_path / "out.npz")
    assert saved["weights_2"].shape == (len(saved["target_2"]), len(saved["source_2"])) == (3, 5)
    np.testing.assert_allclose(saved["weights_2"].sum(axis=1), 1, atol=1e-5)
    for flag, message in (("--layer=9", "more than the number of attentions"), ("--head=9", "more than the 2 heads")):
        assert main(["align", *flags, *files, flag]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "gold").write_text("0-0\n")
    assert main(["align", *flags, *files]) == 2
    assert "gold: 1 lines but 3 sentences" in capsys.readouterr().err
    (tmp_path / "target").write_text("a\n")
    assert main(["align", *flags, *files[:2]]) == 2
    assert "3 source sentences but 1 target sentences" in capsys.readouterr().err


def test_translate_says_which_line_is_not_utf_8(run):
    result = translate(run, b"a\n" * 10 + b"\xff\xfe\n")
    assert result.returncode == 2
    assert b"standard input, line 11: invalid UTF-8" in result.stderr
    assert result.stdout.count(b"\n") == 10


def test_translate_does_not_need_tensorflow(run):
    program = (
        "import sys; sys.modules['tensorflow'] = sys.modules['tensorflow_datasets'] = None\n"
        "from transformer_jax.__main__ import main\n"
        f"sys.exit(main(['translate', '--workdir={run}', '--input={run}/in.txt', '--output={run}/out.txt']))"
    )
    (run / "in.txt").write_text("a b\nc\n")
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    assert (run / "out.txt").read_text().count("\n") == 2


def test_an_average_is_a_run_whose_parameters_are_the_mean(run, tmp_path, capsys):
    average = tmp_path / "average"
    assert main(["checkpoint", "average", str(run), "--count=3", f"--output={average}"]) == 0
    means = read_parameters(RunDirectory(average), "best")[1]
    parts = [read_parameters(RunDirectory(run), step)[1] for step in ("10", "20", "30")]
    for name, mean in means.items():
        np.testing.assert_allclose(mean, sum(part[name] for part in parts) / 3, rtol=1e-5, atol=1e-7)
    (tmp_path / "in.txt").write_text("a b c\n")
    files = [f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out.txt'}"]
    assert main(["translate", f"--workdir={average}", *files]) == 0
    averaged = (tmp_path / "out.txt").read_text()
    assert main(["translate", f"--workdir={run}", "--checkpoint=last", "--average=3", *files]) == 0
    assert (tmp_path / "out.txt").read_text() == averaged
    assert json.loads((average / "run.json").read_text())[0]["average_of"] == {"run": str(run), "steps": [10, 20, 30]}
    capsys.readouterr()
    assert main(["train", f"--config={average}", f"--workdir={average}"]) == 2
    assert f"--init_from={average}" in capsys.readouterr().err
    assert main(["checkpoint", "info", str(average)]) == 0
    assert "optimizer state   none" in capsys.readouterr().out


def test_checkpoints_are_listed_described_compared_and_pruned(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    assert main(["checkpoint", "ls", str(copy)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:5]] == ["0", "10", "20", "30"]
    assert main(["checkpoint", "info", str(copy), "--checkpoint=20"]) == 0
    printed = capsys.readouterr().out
    assert "update            20\n" in printed
    assert re.search(r"    query +16 x 2 x 8 +float32 +256 +1.0 KiB", printed)
    assert ", those of config.json" in printed
    assert main(["checkpoint", "diff", f"{copy}:20", f"{run}:20"]) == 0
    assert "0 arrays differ, " in capsys.readouterr().out
    assert main(["checkpoint", "diff", f"{copy}:20", f"{run}:30"]) == 0
    assert "\n\nNo difference between" in capsys.readouterr().out
    with closing(Checkpoints(copy / "checkpoints", read_only=True)) as checkpoints:
        best = checkpoints.best_step()
    left = {str(best), "30"}
    with RunDirectory(copy).locked():
        assert main(["checkpoint", "prune", str(copy)]) == 2
        assert "a training is running in" in capsys.readouterr().err
    assert main(["checkpoint", "prune", str(copy), "--dry_run"]) == 0
    assert {each.name for each in (copy / "checkpoints").iterdir()} == {"0", "10", "20", "30"}
    assert main(["checkpoint", "prune", str(copy)]) == 0
    assert capsys.readouterr().out.count("\ndeleted") == 4 - len(left)
    assert {each.name for each in (copy / "checkpoints").iterdir()} == left
    with closing(Checkpoints(copy / "checkpoints", read_only=True)) as checkpoints:
        assert checkpoints.best_step() == best


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_attention_draws_a_picture(run, kind, capsys):
    assert main(["attention", f"--workdir={run}", "--text=a b c d", f"--kind={kind}"]) == 0
    assert (run / f"attention-{kind}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "--workdir={run}", "--split=tset"], "has no split 'tset'"),
        (["evaluate", "--workdir={run}", "--checkpoint=7"], "there are best, last, "),
        (
            ["evaluate", "--workdir={run}", "--config.model.d_model=32"],
            "config.model.d_model: the trained model has 16",
        ),
        (["evaluate", "--workdir={run}", "--config.data.source=reverse"], "only decoding, mesh, data.directory and"),
        (["translate", "--workdir={run}", "--n_best=9"], "--n_best: 9 is more than decoding.beam_width=2"),
        (["translate", "--workdir={run}/tokenizer"], "is not a run directory"),
        (["translate", "--workdir={run}/nowhere"], "does not exist"),
        (["attention", "--workdir={run}", "--text= "], "--text: is empty"),
        (
            ["attention", "--workdir={run}", "--text=a", "--output=a.pdf"],
            "--output: a.pdf is not the name of a picture",
        ),
        (["attention", "--workdir={run}", "--text=a", "--output={run}/run.json/a.png"], "run.json is a file"),
        (["evaluate", "--workdir={run}", "--output={run}/run.json"], "--output: {run}/run.json is a file"),
        (["evaluate", "--workdir="], "--workdir: is empty"),
        (["translate", "--workdir={run}", "--input={run}/nowhere"], "{run}/nowhere: cannot be read: No such file"),
        (["translate", "--workdir={run}", "--input={run}/run.json", "--output=/nowhere/a"], "/nowhere/a: No such file"),
        (["checkpoint", "lst", "{run}"], "'lst' is not something to do; did you mean ls?"),
        (["checkpoint", "diff", "{run}"], "checkpoint diff: takes the folders of two runs, found {run}"),
        (["checkpoint", "ls", "{run}/tokenizer"], "RUN: {run}/tokenizer is not a run directory"),
        (["checkpoint", "info", "{run}", "--checkpoint=7"], "no checkpoint '7'; there are best, last, [0, 10, 20, 30]"),
        (["checkpoint", "ls", "{run}", "--dry_run"], "--dry_run: checkpoint ls does not take it; it takes no flags"),
        (["checkpoint", "average", "{run}", "--count=2", "--output={run}"], "--output: {run} is not empty"),
        (["checkpoint", "average", "{run}", "--steps=10,10", "--output={run}/a"], "--steps: 10, 10 has one twice"),
        (
            ["train", "--config={run}", "--workdir={run}/a", "--init_from={run}/b:last"],
            "init.run: {run}/b does not exist",
        ),
        (["train", "--config={run}", "--workdir={run}/run.json"], "--workdir: {run}/run.json is a file"),
        (
            ["align", "--workdir={run}", "--source={run}/nowhere", "--target={run}/run.json"],
            "nowhere: cannot be read: No",
        ),
        (
            ["align", "--workdir={run}", "--source={run}/run.json", "--target={run}/run.json", "--output={run}/"],
            "is a folder",
        ),
    ],
)
def test_mistakes_are_told_in_one_message(run, arguments, message, capsys):
    assert main([argument.format(run=run) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert message.format(run=run) in error
    assert "Traceback" not in error
