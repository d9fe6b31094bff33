"""Evaluate, align, score and look at a trained run, through the command line."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sacrebleu

from transformer_jax.__main__ import main
from transformer_jax.commands.run_flags import commands_to_try
from transformer_jax.config import from_dict, load_run_config
from transformer_jax.data import tokenization
from transformer_jax.files.checked_json import without_crc
from transformer_jax.registry import python_files


def test_evaluate_prints_a_table_and_writes_json_and_every_line(run, capsys):
    assert main(["evaluate", f"--workdir={run}", "--checkpoint=last", "--average=3", "--examples=2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nreference ") == 2
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in printed
    report = json.loads((run / "evaluation-test-30-average3.json").read_text())
    assert (report["num_sentences"], report["averaged_checkpoints"]) == (24, 3)
    translations = (run / "evaluation-test-30-average3.txt").read_text().split("\n")[:-1]
    references = (Path(load_run_config(run).data.directory) / "test.de").read_text().split("\n")[:-1]
    assert report["scores"]["bleu"] == sacrebleu.corpus_bleu(translations, [references]).score > 0


@pytest.mark.slow
def test_evaluate_measures_what_training_measured(run, capsys):
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = next(record for record in logged if record["step"] == 30 and "validation/loss" in record)
    # On as many devices, so that every sum is taken in the same order.
    devices = "--config.mesh=data=1,fsdp=1,tensor=1"
    main(["evaluate", f"--workdir={run}", "--split=validation", "--checkpoint=30", devices, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["num_sentences"], report["loss"]) == (40, logged["validation/loss"])
    assert report["scores"]["bleu"] == logged["validation/bleu"] > 0


def test_align_links_every_target_word(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tokenization, "SECONDS_UNTIL_SHOWN", 0.0)
    (tmp_path / "source").write_text("a b c\n\nd e f g\n")
    (tmp_path / "target").write_text("a b c\n\nd e\n")
    (tmp_path / "gold").write_text("0-0 1-1 2?2\n\n0-0\n")
    files = [f"--source={tmp_path / 'source'}", f"--target={tmp_path / 'target'}", f"--gold={tmp_path / 'gold'}"]
    flags = [f"--workdir={run}", "--checkpoint=last", f"--output={tmp_path / 'out'}"]
    assert main(["align", *flags, *files, "--layer=1", "--head=2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith(f"{tmp_path}/out.pharaoh\n{tmp_path}/out.npz\n")
    assert "alignment error rate" in printed.out and "aligning words: 1 of 3 pairs" in printed.err
    lines = (tmp_path / "out.pharaoh").read_text().split("\n")
    targets = [sorted(int(link.partition("-")[2]) for link in line.split()) for line in lines]
    assert targets == [[0, 1, 2], [], [0, 1], []]
    assert main(["align", *flags, *files, "--layer=-1"]) == 0
    saved = np.load(tmp_path / "out.npz")
    assert saved["weights_2"].shape == (len(saved["target_2"]), len(saved["source_2"])) == (3, 5)
    np.testing.assert_allclose(saved["weights_2"].sum(axis=1), 1, atol=1e-5)
    (tmp_path / "gold").write_text("0-0\n")
    assert main(["align", *flags, *files]) == 2
    assert "gold: 1 lines but 3 sentences" in capsys.readouterr().err


@pytest.mark.slow
def test_an_ensemble_is_scored_on_any_text_against_several_references(run, tmp_path, monkeypatch, capsys):
    for name, lines in (("in.en", "a b\nc d\n"), ("one", "a b c d e b a\nx\n"), ("two", "y\na b c d e d c\n")):
        (tmp_path / name).write_text(lines)
    files = [f"--source={tmp_path}/in.en", f"--references={tmp_path}/one", f"--references={tmp_path}/two"]
    flags = ["--json", "--checkpoint=30", "--config.decoding.beam_width=1", f"--output={tmp_path}"]
    assert main(["evaluate", str(run), *files, *flags, f"--ensemble={run}/:10"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["scores"]["num_references"], report["num_sentences"]) == (2, 2) and report["loss"] > 0
    assert report["references"] == [["a b c d e b a", "x"], ["y", "a b c d e d c"]]
    assert report["ensemble"] == [f"{run}/:10"]
    (text,) = tmp_path.glob(f"evaluation-text-in.en-*-30-*ensemble+{run.name}-10*.txt")
    assert "beam_width=1" in text.name and text.read_text().count("\n") == 2
    assert without_crc(json.loads(text.with_suffix(".json").read_text())) == report


def test_beam_search_scores_are_log_probabilities_over_the_length_penalty(run, tmp_path, capsys):
    source, target, output = (tmp_path / name for name in ("source", "target", "n_best"))
    source.write_text("a b c\nd e f g\n")
    files, run_flags = [f"--source={source}", f"--target={target}"], [str(run), "--checkpoint=last"]
    assert main(["translate", *run_flags, f"--source={source}", f"--output={output}", "--n_best=2"]) == 0
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    target.write_text("".join(f"{row[2]}\n" for row in rows))
    source.write_text("".join(f"{['a b c', 'd e f g'][int(row[0]) - 1]}\n" for row in rows))
    capsys.readouterr()
    assert main(["score", *run_flags, *files]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 4
    for (log_prob, tokens, of_tokens), (_, score, _) in zip(lines, rows, strict=True):
        each = [float(number) for number in of_tokens.split(" ")]
        assert len(each) == int(tokens) and sum(each) == pytest.approx(float(log_prob), abs=1e-3)
        # Length penalty 0.6 (Wu et al. 2016, equation 14).
        assert float(log_prob) / ((5 + int(tokens)) / 6) ** 0.6 == pytest.approx(float(score), abs=1e-2)

    assert main(["score", *run_flags, *files, "--json", f"--ensemble={run}"]) == 0
    for line, (log_prob, tokens, _) in zip(capsys.readouterr().out.splitlines(), lines, strict=True):
        record = json.loads(line)
        assert record["log_prob"] == pytest.approx(float(log_prob), abs=1e-3)
        assert len(record["tokens"]) == len(record["token_log_probs"]) == int(tokens) and record["tokens"][-1] == "</s>"
    target.write_bytes(b"a\rb\rc\r")
    references = [file.replace("--target", "--references") for file in files]
    for command in (["score", *files], ["evaluate", *references], ["align", *files]):
        assert main([command[0], *run_flags, *command[1:]]) == 2
        error = capsys.readouterr().err
        assert f"{target} has 1; line n of one must translate line n" in error and "tr '\\r' '\\n'" in error


def test_a_blank_source_is_an_empty_line_in_every_command(run, tmp_path, capsys):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("\u200b\n\u3000\na b c\n\u0007\n", encoding="utf-8")
    target.write_text("\ufeff\ufeff\nx\na\n\u200e\n", encoding="utf-8")
    flags, files = [str(run), "--checkpoint=last"], [f"--source={source}", f"--target={target}"]
    assert main(["translate", *flags, f"--source={source}"]) == 0
    assert [bool(line) for line in capsys.readouterr().out.split("\n")] == [False, False, True, False, False]
    assert main(["score", *flags, *files]) == 0
    rows = [line.split("\t")[:2] for line in capsys.readouterr().out.splitlines()]
    assert [rows[0], rows[1][0], rows[3]] == [["0.0000", "0"], "-inf", ["0.0000", "0"]] and float(rows[2][0]) < 0
    assert main(["score", *flags, *files, "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["log_prob"] for record in records[:2]] == [0, None] and set(records[1]["token_log_probs"]) == {None}
    for command, output in (("attention", "a.png"), ("explore", "a.html")):
        assert main([command, *flags, "--text=\u200b", f"--output={tmp_path / output}"]) == 2
        assert "'<U+200B>' has no visible character" in capsys.readouterr().err
    source.write_text("a b c\n\u3000\n", encoding="utf-8")
    assert main(["explore", *flags, "--text=a", f"--source={source}", f"--output={tmp_path / 'a.html'}"]) == 2
    assert f"{source}, line 2: '<U+3000>' has no visible character; give a text" in capsys.readouterr().err


def test_evaluate_counts_what_was_cut_and_tells_what_the_model_never_saw(run, tmp_path, capsys):
    source = tmp_path / "in.txt"
    source.write_text("\u200b\na b\n猫 a\n" + "a b " * 9 + "\n", encoding="utf-8")
    files = [f"--source={source}", f"--references={source}", f"--output={tmp_path}", "--checkpoint=last"]
    command = ["evaluate", str(run), *files, "--config.decoding.max_extra_tokens=1", "--examples=0"]
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["lines_with_cut"] and 1 not in report["lines_with_cut"] and report["lines_with_repeats"] is not None
    never_saw = "has characters or words that the model never saw in training (first: line 3): 猫"
    assert f"in.txt: 1 of 4 lines {never_saw}" in printed.err
    assert main(command) == 0
    first = report["lines_with_cut"][0]
    assert f"outputs reached the length limit and may be cut (first: line {first})" in capsys.readouterr().out


def test_attention_draws_a_picture(run, tmp_path, monkeypatch, capsys):
    for kind, output, begin in (
        ("cross", "a.png", b"\x89PNG\r"),
        ("decoder", "a.pdf", b"%PDF-"),
        ("encoder", "a.svg", b"<?xml"),
    ):
        command = ["attention", str(run), "--text=a b c d", f"--kind={kind}", f"--output={tmp_path / output}"]
        assert main(command) == 0
        assert (tmp_path / output).read_bytes()[:5] == begin
        assert capsys.readouterr().out.endswith(f"\n{tmp_path / output}\n")


def test_commands_to_try_have_the_flags_of_the_run_and_the_tag_of_its_lines(tmp_path, monkeypatch):
    data = {"source": "mixture", "train": "de=a.tsv fr=b.tsv", "tags": "de=<2de> fr=<2fr>"}
    config = from_dict({"data": data, "tokenizer": {"kind": "bpe"}})
    evaluation, translation = commands_to_try(config, "runs/a b", ["runs/c:4"], evaluated="test")
    assert evaluation.endswith(" evaluate --workdir='runs/a b' --ensemble=runs/c:4 --split=test")
    assert translation.endswith(" --ensemble=runs/c:4 < <(sed 's/^/<2de> /' input.txt)")
    translation, page = commands_to_try(from_dict({}), "runs/a")
    assert translation.endswith(" translate --workdir=runs/a < input.txt")
    assert " explore --workdir=runs/a --live" in page
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(python_files, "_LOADED", {})
    (tmp_path / "mine.py").write_text("")
    python_files.load_plugin("mine.py")
    assert " --workdir=runs/a --plugin=mine.py < " in commands_to_try(from_dict({}), "runs/a")[0], "as it was typed"


WITHOUT_JAX = """
import sys
from transformer_jax.__main__ import main
for arguments in {}:
    assert main(arguments) == 2
assert "jax" not in sys.modules
"""


def test_mistakes_are_found_before_jax_starts(run, tmp_path):
    bad, good, one = (tmp_path / name for name in ("bad", "good", "one"))
    bad.write_bytes(b"good\n\xff\n")
    good.write_text("a\nb\n")
    one.write_text("a\n")
    evaluate, translate, align = (["evaluate", str(run)], ["translate", str(run)], ["align", str(run)])
    attention, train, at_400 = ["attention", str(run), "--text=a"], ["train", "--config=quickstart"], "--checkpoint=400"
    mistakes = [
        ([*evaluate, "--split=tset"], "no split 'tset'; expected tset.en"),
        ([*evaluate, at_400], "no checkpoint '400'; kept are 0, 10, 20, 30 (best "),
        (["export", str(run), "--format=safetensors", f"--output={tmp_path}/new", at_400], "no checkpoint '400'; kept"),
        ([*evaluate, f"--ensemble={run},"], "run,' has an empty item; remove a comma"),
        ([*translate, f"--source={tmp_path}/none"], "none: cannot be read: No such file"),
        ([*translate, f"--output={tmp_path}"], "is a folder; give a file"),
        ([*translate, "--n_best=9"], "--n_best: 9 is more than decoding.beam_width=2"),
        ([*translate, f"--ensemble={run}:bst"], "bst: there is no such folder, and 'bst' is not"),
        (["translate", f"{run}/tokenizer"], "is not a run directory"),
        ([*align, f"--source={bad}", f"--target={good}"], "bad, line 2: invalid UTF-8"),
        ([*align, f"--source={one}", f"--target={one}", f"--output={run}/"], "is a folder"),
        ([*attention, "--layer=9"], "--layer: layer 9 has no attention of kind cross; layers with it: 1"),
        ([*train, "--config.training.trackers=absent", f"--workdir={tmp_path}/t"], "training.trackers: 'absent'"),
        (["train", "--config=text", f"--config.data.train={good},/none", str(tmp_path)], "/none is not a file"),
    ]
    program = WITHOUT_JAX.format([arguments for arguments, _ in mistakes])
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    for line, (_, message) in zip(found.stderr.splitlines(), mistakes, strict=True):
        assert message in line
