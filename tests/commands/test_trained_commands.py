"""Evaluate, translate and look at a trained run, through the command line."""

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.__main__ import main
from transformer_jax.comparing import translated_split
from transformer_jax.config import DataError, from_dict
from transformer_jax.data.listed_tokenizer import WordTokenizer
from transformer_jax.data.tokenizers import TokenizerPair, save_tokenizers
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


def test_runs_without_saved_translations_are_evaluated_once(run, tmp_path, monkeypatch, capsys):
    other = tmp_path / "other"
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("evaluation-*"))
    compare = ["compare", str(run), str(other), "--split=validation", "--checkpoint=30", f"--output={tmp_path / 'out'}"]
    assert main(compare) == 0
    assert f"{other}: translating validation with checkpoint 30" in capsys.readouterr().err
    text = (tmp_path / "out" / "compare.csv").read_text()
    # The same parameters: no difference, and nothing but chance.
    assert [row["p_value"] for row in csv.DictReader(text.splitlines())] == ["1.0", "1.0"]
    saved = [folder / "evaluation-validation-30.txt" for folder in (run, other)]
    assert saved[0].read_text() == saved[1].read_text()

    def refuse(*arguments, **settings):
        raise DataError("evaluated again")

    monkeypatch.setattr(translated_split, "open_trained_run", refuse)
    assert main(compare) == 0
    assert main([*compare, "--config.decoding.beam_width=1"]) == 2
    assert "evaluated again" in capsys.readouterr().err


def test_report_finds_the_best_checkpoint(run, tmp_path):
    assert main(["report", str(run), f"--output={tmp_path}"]) == 0
    row = next(csv.DictReader((tmp_path / "report.csv").read_text().splitlines()))
    assert row["best_checkpoint"] == str(run / "checkpoints" / row["best_update"])
    assert row["parameters"] == str(json.loads((run / "run.json").read_text())[0]["parameters"])
    assert float(row["seconds"]) > 0


def test_a_run_together_with_itself_translates_as_it_does_alone(run, tmp_path):
    (tmp_path / "in").write_text("a b c\nd e\n")
    flags = [f"--workdir={run}", "--checkpoint=30"]
    together = f"--ensemble={run}/:30,{run}"
    found = []
    for more in ([], [together]):
        files = [f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}"]
        assert main(["translate", *flags, *files, "--n_best=2", *more]) == 0
        found.append([line.split("\t") for line in (tmp_path / "out").read_text().splitlines()])
    for alone, doubled in zip(*found, strict=True):
        assert alone[0] == doubled[0] and alone[2] == doubled[2]
        assert float(alone[1]) == pytest.approx(float(doubled[1]), abs=2e-4)


def test_an_ensemble_is_told_in_the_report_and_in_its_name(run, tmp_path, capsys):
    flags = [f"--workdir={run}", "--checkpoint=30", f"--ensemble={run}/:10", f"--output={tmp_path}", "--json"]
    assert main(["evaluate", *flags]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ensemble"] == [f"{run}/:10"]
    assert json.loads((tmp_path / f"evaluation-test-30-ensemble+{run.name}-10.json").read_text()) == report
    assert (tmp_path / f"evaluation-test-30-ensemble+{run.name}-10.txt").read_text().count("\n") == 500


def test_runs_of_other_tokens_are_no_ensemble(run, tmp_path, capsys):
    shutil.copy(run / "config.json", tmp_path)
    save_tokenizers(TokenizerPair(*2 * [WordTokenizer.train(["x y z"], 64)]), tmp_path / "tokenizer")
    assert main(["translate", f"--workdir={run}", f"--ensemble={tmp_path}"]) == 2
    assert f"{tmp_path} has another source tokenizer than {run}" in capsys.readouterr().err


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
        (["translate", "--workdir={run}", "--ensemble={run}:7"], "there are best, last, "),
        (["translate", "--workdir={run}", "--ensemble={run}:bst"], "--ensemble: {run}:bst does not exist"),
        (["evaluate", "--workdir={run}", "--ensemble={run},"], "--ensemble: one of the runs is empty"),
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
