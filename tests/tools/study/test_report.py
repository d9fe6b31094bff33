import csv
import json
import os
from pathlib import Path

import pytest
from shared_run import few_devices

from transformer_jax.__main__ import main
from transformer_jax.config import from_dict
from transformer_jax.files.checked_json import with_crc
from transformer_jax.run_directory.layout import short_names
from transformer_jax.tools.study.comparability import different_text
from transformer_jax.tools.study.run_summary import summarize

__all__ = ["few_devices"]

RECORDS = [
    {"step": 1, "train/loss": 4.0, "train/target_tokens": 100.0, "speed/target_tokens_per_second": 10.0},
    {"step": 2, "train/loss": 3.0, "train/target_tokens": 200.0, "speed/target_tokens_per_second": 30.0},
    {"step": 2, "validation/bleu": 20.0, "validation/chrf": 40.0, "validation/perplexity": None},
    {"step": 3, "train/loss": 2.0, "train/target_tokens": 300.0, "speed/target_tokens_per_second": 20.0},
    {"step": 3, "validation/bleu": 10.0, "validation/chrf": 50.0, "validation/perplexity": 8.0},
]
EVALUATION = {
    "checkpoint_step": 3,
    "averaged_checkpoints": 1,
    "split": "test",
    "metrics": {"bleu": 20.0},
    "scores": {"bleu": 20.0},
}


def test_a_run_is_judged_at_its_best_validation(make_run):
    run = make_run("run", records=RECORDS)
    (run / "run.json").write_text(json.dumps([{"parameters": 1}, {"parameters": 12345}]))
    (run / "goodput.json").write_text(json.dumps({"seconds": {"start_up": 60.0, "step": 3600.5, "lost": 1.0}}))
    summary = summarize(run, "run")
    assert (summary.score, summary.best_update) == (20.0, 2)
    assert (summary.metrics["chrf"], summary.metrics["perplexity"]) == (40.0, None)
    assert (summary.updates, summary.target_tokens, summary.target_tokens_per_second) == (3, 300, 20.0)
    assert (summary.parameters, summary.seconds, summary.best_checkpoint) == (12345, 3661.5, None)
    (run / "goodput.json").write_text(json.dumps({"seconds": {"start_up": 60.0, "step": 0.0}}))
    assert summarize(run, "run").seconds is None


def test_runs_of_all_kinds_and_in_all_states(make_run, tmp_path, capsys):
    over = make_run("x/over", {"optimizer": {"learning_rate": 0.5}}, RECORDS)
    (over / "outcome.json").write_text(json.dumps({"signs": ["attention is uniform"]}))
    make_run("y/over", {"model": {"kind": "rnn"}}, [{**record, "validation/bleu": 30.0} for record in RECORDS])
    make_run("trials/going_on", records=RECORDS[:2], unfinished='{"step": 3, "tra')
    make_run("trials/just_begun")
    output = tmp_path / "out" / "report"
    arguments = [str(tmp_path / name) for name in ("x/over", "y/over", "trials")]
    assert main(["report", *arguments, f"--output={output}"]) == 0
    said = capsys.readouterr().out
    scores = [line.split()[:2] for line in said.splitlines()[3:7]]
    assert scores == [["y/over", "30.00"], ["x/over", "20.00"], ["going_on"], ["just_begun"]]
    assert "WARNING: x/over: attention is uniform." in said
    with (output / "report.csv").open(newline="") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert rows["going_on"]["updates"] == "2"
    assert rows["going_on"]["validation_bleu"] == rows["just_begun"]["updates"] == ""
    assert rows["x/over"]["optimizer.learning_rate"] == "0.5"
    assert rows["y/over"]["model.d_ff"] == "" != rows["y/over"]["model.cell"]
    assert "seed" not in rows["y/over"]
    assert rows["x/over"]["folder"] == os.path.relpath(over)
    page = (output / "report.html").read_text()
    assert "data:image/png;base64," in page and "y/over" in page
    assert "](curves.png)" in (output / "report.md").read_text()
    assert (output / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_runs_that_differ_in_their_seed_alone_have_a_mean_with_an_interval(make_run, tmp_path):
    for seed, bleu in enumerate((20.0, 22.0)):
        make_run(f"runs/{seed}", {"seed": seed}, [{"step": 2, "validation/bleu": bleu}])
    make_run("runs/other", {"model": {"d_ff": 64}}, [{"step": 2, "validation/bleu": 30.0}])
    assert main(["report", str(tmp_path / "runs"), f"--output={tmp_path / 'out'}"]) == 0
    # Student's t with one degree of freedom: 12.706 times the deviation of the mean, which is 1.
    assert "| 21.00 \\[8.29, 33.71\\] | 2 of 2 |" in (tmp_path / "out" / "report.md").read_text()


def test_runs_that_were_scored_on_different_text_are_not_ranked_without_a_word(make_run, tmp_path, capsys, monkeypatch):
    text = {"source": "text", "directory": "/data/old"}
    make_run("runs/a", {"data": text}, RECORDS)
    make_run("runs/b", {"data": {**text, "seed": 3, "max_source_tokens": 99}, "seed": 5}, RECORDS)
    report = ["report", str(tmp_path / "runs"), f"--output={tmp_path / 'out'}"]
    assert main(report) == 0
    assert "not comparable" not in capsys.readouterr().out
    assert "b hides a: equal curves." in (tmp_path / "out" / "report.md").read_text()
    make_run("runs/c", {"data": {**text, "directory": "/data/new"}, "training": {"validation_sentences": 9}}, RECORDS)
    assert main(report) == 0
    differ = "The runs differ in data.directory, training.validation_sentences: their scores are not"
    assert differ in capsys.readouterr().out
    assert differ in (tmp_path / "out" / "report.md").read_text()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(report) == 0
    assert differ.replace(" are not", "\nare not comparable") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("/home/a/x/train.en", "/home/b/y/train.en"), ["| .../x/train.en |", "| .../y/train.en |"]),
        (("/home/a/x/t.en,/home/a/x/t.de", "gs://c/d/e/t.en"), [".../x/t.en,.../x/t.de", "gs://c/d/e/t.en"]),
        (("/home/a/x/train.en", "/home/b/x/train.en"), ["/home/a/x/train.en", "/home/b/x/train.en"]),
    ],
)
def test_files_elsewhere_are_named_without_their_folders_where_they_differ(make_run, tmp_path, files, expected):
    for name, file in zip("ab", files, strict=True):
        make_run(f"runs/{name}", {"data": {"source": "text", "train": file}}, RECORDS)
    assert main(["report", str(tmp_path / "runs"), f"--output={tmp_path / 'out'}"]) == 0
    report = (tmp_path / "out" / "report.md").read_text()
    assert all(cell in report.replace(" | ", " | | ") for cell in expected)
    assert ("/home" in report) == ("/home" in expected[0])


@pytest.mark.parametrize(
    ("task", "data", "others", "differ"),
    [
        ("language_model", {"train": "/a"}, {"seed": 1}, ""),
        ("language_model", {"train": "/a"}, {"train": "/b", "seed": 1}, "data.train"),
        ("language_model", {"train": "/a"}, {"evaluation_stride": 8}, "data.evaluation_stride"),
        ("translation", {"directory": "/a", "held_out": 9.0}, {"seed": 1}, "data.seed"),
    ],
)
def test_only_settings_that_change_the_scored_text_make_scores_incomparable(task, data, others, differ):
    data = {"source": "text", **data}
    configs = [from_dict({"task": task, "data": settings}) for settings in (data, {**data, **others})]
    warnings = different_text(configs)
    assert [warning.partition(":")[0] for warning in warnings] == [f"The runs differ in {differ}"] * bool(differ)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{run}", "--metrics=train/los"], "--metrics: no run has measured 'train/los'; did you mean 'train/loss'?"),
        (["{run}", "--output={run}/config.json"], "--output: {run}/config.json is a file"),
        (["{run}/nowhere"], "{run}/nowhere' is not a folder"),
        (["{run}/checkpoints"], "no config.json in it or one level below (there is nothing)"),
    ],
)
def test_mistakes_are_told(make_run, tmp_path, arguments, message, capsys):
    run = make_run("run", records=RECORDS)
    (run / "checkpoints").mkdir()
    # The flag given last counts.
    arguments = [f"--output={tmp_path / 'out'}", *(argument.format(run=run) for argument in arguments)]
    assert main(["report", *arguments]) == 2
    assert message.format(run=run) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("run.json", text) for text in ('[{"parameters": "x"}]', "[" * 50_000)),
        ("goodput.json", '{"seconds": {"step": "x"}}'),
        ("goodput.json", '{"seconds": {"step": 3.0}, "crc32": "00000000"}'),
        ("metrics.jsonl", '{"step": 1, "train/loss": "<img src=x>"}\n'),
        ("metrics.jsonl", json.dumps(with_crc(RECORDS[0])).replace("4.0", "4.5") + "\n"),
        ("outcome.json", json.dumps(with_crc({"step": 3})).replace("3", "4", 1)),
        ("outcome.json", "{"),
        ("data.json", "[1"),
        ("evaluation-test-3.json", json.dumps(EVALUATION | {"scores": {"bleu": 20.1}})),
        ("evaluation-test-3.json", json.dumps(with_crc(EVALUATION)).replace("20.0", "80.0")),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_of_the_run_reported(make_run, tmp_path, capsys, name, content):
    run = make_run("run", records=RECORDS[1:])
    if name == "metrics.jsonl":
        content += (run / name).read_text()
    (run / name).write_text(content)
    assert main(["report", str(run), f"--output={tmp_path / 'out'}"]) == 0
    printed = capsys.readouterr().out
    assert f"WARNING: run: {run / name}" in printed and "20.00" in printed and "80.0" not in printed


def test_a_log_cut_short_is_told_from_its_newest_checkpoint_and_its_outcome(make_run):
    run = make_run("run", records=RECORDS[:3])
    progress = run / "checkpoints" / "3" / "progress" / "metadata"
    progress.parent.mkdir(parents=True)
    progress.write_text(json.dumps({"num_records": 5, "log_digest": "0"}))
    (run / "outcome.json").write_text(json.dumps({"step": 3, "reason": "finished", "signs": []}))
    summary = summarize(run, "run")
    assert summary.updates == 3
    assert f"{run}/metrics.jsonl: records were lost: 3 left of 5" in summary.problems
    (run / "metrics.jsonl").unlink()
    assert f"{run}/metrics.jsonl: records were lost: 0 left of 5" in summarize(run, "run").problems
    assert any(problem.startswith(f"{run / 'run.json'}: no such file") for problem in summary.problems)


def test_a_crafted_file_of_a_run_sends_no_escape_sequence(make_run, tmp_path, capsys):
    run = make_run("run", records=RECORDS)
    (run / "outcome.json").write_text(json.dumps({"step": 20, "reason": "finished", "signs": ["\x1b]52;c;\x07"]}))
    assert main(["report", str(run), f"--output={tmp_path / 'out'}"]) == 0
    printed = capsys.readouterr().out
    assert "run: <U+001B>]52;c;<U+0007>." in printed and not set("\x1b\x07") & set(printed)


def test_names_are_as_short_as_can_be():
    cases = {
        "/runs/a /runs/b": "a b",
        "/a/x/run /b/x/run /b/other": "a/x/run b/x/run other",
        "/run /a/run": "//run a/run",
    }
    assert short_names([Path(), Path("../a/../run")]) == [Path.cwd().name, "run"]
    for paths, names in cases.items():
        assert short_names([Path(path) for path in paths.split()]) == names.split()


def test_the_heading_of_a_score_has_the_sentences_that_were_decoded(make_run, tmp_path, capsys):
    def of(run, basis):
        progress = tmp_path / run / "checkpoints" / "3" / "progress"
        progress.mkdir(parents=True, exist_ok=True)
        (progress.parent / "_CHECKPOINT_METADATA").write_text("{}")
        (progress / "metadata").write_text(json.dumps({"counters": {"basis": basis}}))

    runs = [str(make_run(name, records=RECORDS)) for name in ("first", "second")]
    for name in ("first", "second"):
        of(name, "96 of 1,014 sentences, greedy")
    assert main(["report", *runs, f"--output={tmp_path / 'out'}"]) == 0
    assert "  BLEU (96 of 1,014 sentences, greedy)   chrF" in capsys.readouterr().out
    of("second", "1,014 sentences, beam 4")
    assert main(["report", *runs, f"--output={tmp_path / 'out'}"]) == 0
    heading, first, second = capsys.readouterr().out.splitlines()[2:5]
    assert "BLEU   chrF" in heading and "validated on" in heading
    assert "96 of 1,014 sentences, greedy" in first and "1,014 sentences, beam 4" in second


def test_saved_translations_and_attention_are_shown(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(run.parent)
    arguments = ["report", "run", f"--output={tmp_path / 'report'}"]
    assert main(arguments) == 0
    assert "## Sentences" not in (tmp_path / "report" / "report.md").read_text()
    assert main(["evaluate", "run", "--split=validation", "--examples=0"]) == 0
    (translations,) = run.glob("evaluation-validation-*.txt")
    lines = translations.read_text().split("\n")
    assert main(arguments) == 0
    report = (tmp_path / "report" / "report.md").read_text()
    assert [line in report for line in lines[:3]] == [True] * 3
    assert "](attention.png)" in report and (tmp_path / "report" / "attention.png").is_file()
    assert str(run.parent) not in report
