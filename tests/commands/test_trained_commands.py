"""Evaluate, align and look at a trained run, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import sacrebleu

from transformer_jax.__main__ import main
from transformer_jax.config import load_run_config


def test_evaluate_prints_a_table_and_writes_json_and_every_line(run, capsys):
    assert main(["evaluate", f"--workdir={run}", "--checkpoint=last", "--average=3", "--examples=2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nreference ") == 2
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in printed
    report = json.loads((run / "evaluation-test-30-average3.json").read_text())
    assert report["num_sentences"] == 24
    assert report["averaged_checkpoints"] == 3
    translations = (run / "evaluation-test-30-average3.txt").read_text().split("\n")[:-1]
    references = (Path(load_run_config(run).data.directory) / "test.de").read_text().split("\n")[:-1]
    assert len(translations) == len(references)
    assert report["scores"]["bleu"] == sacrebleu.corpus_bleu(translations, [references]).score > 0


def test_evaluate_measures_what_training_measured(run, capsys):
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = next(record for record in logged if record["step"] == 30 and "validation/loss" in record)
    # On as many devices, so that every sum is taken in the same order.
    devices = "--config.mesh=data=2,fsdp=2,tensor=2"
    main(["evaluate", f"--workdir={run}", "--split=validation", "--checkpoint=30", devices, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["num_sentences"] == 40
    assert report["loss"] == logged["validation/loss"]
    assert report["scores"]["bleu"] == logged["validation/bleu"] > 0


def test_another_search_is_another_file(run):
    assert main(["evaluate", f"--workdir={run}", "--checkpoint=20", "--config.decoding.beam_width=1"]) == 0
    assert (run / "evaluation-test-20-beam_width=1.json").is_file()
    assert not (run / "evaluation-test-20.json").exists()


def test_an_ensemble_is_told_in_the_report_and_in_its_name(run, tmp_path, capsys):
    flags = [f"--workdir={run}", "--checkpoint=30", f"--ensemble={run}/:10", f"--output={tmp_path}", "--json"]
    assert main(["evaluate", *flags]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ensemble"] == [f"{run}/:10"]
    saved = json.loads((tmp_path / f"evaluation-test-30-ensemble+{run.name}-10.json").read_text())
    assert saved.pop("digest") and saved == report
    assert (tmp_path / f"evaluation-test-30-ensemble+{run.name}-10.txt").read_text().count("\n") == 24


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
    for flag, message in (("--layer=9", "more than the 1 of the model"), ("--head=9", "more than the 2 heads")):
        assert main(["align", *flags, *files, flag]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "gold").write_text("0-0\n")
    assert main(["align", *flags, *files]) == 2
    assert "gold: 1 lines but 3 sentences" in capsys.readouterr().err
    (tmp_path / "target").write_text("a\n")
    assert main(["align", *flags, *files[:2]]) == 2
    assert "source has 3 lines but" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_attention_draws_a_picture(run, kind, capsys):
    assert main(["attention", f"--workdir={run}", "--text=a b c d", f"--kind={kind}"]) == 0
    assert (run / f"attention-{kind}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "--workdir={run}", "--split=tset"], "no split 'tset'; expected tset.en"),
        (["evaluate", "--workdir={run}", "--checkpoint=7"], "kept are 0, 10, 20, 30 (best "),
        (
            ["evaluate", "--workdir={run}", "--config.model.d_model=32"],
            "config.model.d_model: the trained model has 16",
        ),
        (
            ["evaluate", "--workdir={run}", "--config.data.source=reverse"],
            "only decoding, mesh, data.directory, data.train",
        ),
        (["translate", "--workdir={run}", "--n_best=9"], "--n_best: 9 is more than decoding.beam_width=2"),
        (["translate", "--workdir={run}", "--ensemble={run}:7"], "kept are 0, 10, 20, 30 (best "),
        (
            ["translate", "--workdir={run}", "--ensemble={run}:bst"],
            "--ensemble: {run}:bst: there is no such folder, and 'bst' is not",
        ),
        (["evaluate", "--workdir={run}", "--ensemble={run},"], "--ensemble: the name of a run is empty"),
        (["translate", "--workdir={run}/tokenizer"], "is not a run directory"),
        (["translate", "--workdir={run}/nowhere"], "does not exist"),
        (["attention", "--workdir={run}", "--text= "], "--text: is empty"),
        (
            ["attention", "--workdir={run}", "--text=a", "--output=a.gif"],
            "--output: must end in .png, .pdf, .svg (got a.gif)",
        ),
        (["attention", "--workdir={run}", "--text=a", "--output={run}/run.json/a.png"], "run.json is a file"),
        (["evaluate", "--workdir={run}", "--output={run}/run.json"], "--output: {run}/run.json is a file"),
        (["evaluate", "--workdir="], "--workdir: is empty"),
        (["translate", "--workdir={run}", "--input={run}/nowhere"], "{run}/nowhere: cannot be read: No such file"),
        (
            ["translate", "--workdir={run}", "--input={run}/run.json", "--output=/nowhere/a"],
            "--output: /nowhere/a cannot be written: No such file",
        ),
        (["checkpoint", "lst", "{run}"], "'lst' is not an action; did you mean ls?"),
        (["checkpoint", "diff", "{run}"], "checkpoint diff: takes the folders of two runs, found {run}"),
        (["checkpoint", "ls", "{run}/tokenizer"], "RUN: {run}/tokenizer is not a run directory"),
        (["checkpoint", "info", "{run}", "--checkpoint=7"], "no checkpoint '7'; kept are 0, 10, 20, 30 (best "),
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
