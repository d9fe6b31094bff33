"""Tables 2 and 3 of the paper: rows that resolve, sizes, directions of effects, and the tables, on made-up figures."""

import argparse
import csv
import importlib
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from transformer_jax.config import to_json
from transformer_jax.evaluation.significance import Estimate
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import init_params
from transformer_jax.tools.reports.document import to_markdown
from transformer_jax.tools.sweeps.definition import load_sweep
from transformer_jax.training.state import count_parameters

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {name: ROOT / "experiments" / name for name in ("paper_table2", "paper_table3")}


@pytest.fixture(autouse=True)
def forget_the_scripts(monkeypatch):
    """At the root, where recipes are found; and what a test imports from the folders no other test sees."""
    monkeypatch.chdir(ROOT)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if Path(str(getattr(sys.modules[name], "__file__", ""))).parent in FOLDERS.values():
            del sys.modules[name]


@pytest.fixture
def script(monkeypatch):
    """Imports a module of table 3, or of another table that builds on it."""

    def load(module: str, table: str = "paper_table3"):
        monkeypatch.syspath_prepend(str(FOLDERS["paper_table3"]))
        monkeypatch.syspath_prepend(str(FOLDERS[table]))
        return importlib.import_module(module)

    return load


def sweep_of(table: str, scale: str, rows: tuple[str, ...] = ()):
    return load_sweep(f"{FOLDERS[table] / 'sweep.py'}:{scale}", [], rows)


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_row_of_table_3_is_possible_and_is_another_model_or_loss(script, scale):
    sweep = sweep_of("paper_table3", scale)
    assert list(sweep.rows) == list(script("rows").FOUND)
    settings = [sweep.settings({"row": name}) for name in sweep.rows]
    assert len(set(settings)) == len(settings)
    assert len({config.batching for config in settings}) == len({config.tokenizer for config in settings}) == 1


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_row_of_table_2_keeps_the_checkpoints_that_it_averages(script, scale):
    average_of = script("run", "paper_table2").average_of
    sweep = sweep_of("paper_table2", scale)
    assert list(sweep.rows) == list(script("reported", "paper_table2").FOUND)
    for name in sweep.rows:
        config = sweep.settings({"row": name})
        assert config.data.target_language == name[-2:].lower()
        assert config.training.keep_last == average_of(scale, name)
        assert config.training.num_updates // config.training.checkpoint_every >= average_of(scale, name)
        if scale == "paper":
            assert config.data.name.endswith(f"{name[-2:].lower()}-en")


# A row of each kind; tests/models/test_transformer.py counts the models of all.
@pytest.mark.parametrize("name", ["B d_key/4", "C layers/3", "C d_model/2", "C d_ff/2", "big"])
def test_sizes_are_the_papers_to_the_million(script, name):
    """With 41,100 pieces, not the "about 37,000" of section 5.1, for every row but big, which fits 37,000 to 1.2 million."""
    vocabulary = 37_000 if name == "big" else 41_100
    settings = sweep_of("paper_table3", "paper", (name,)).settings({"row": name})
    model = build_model(settings.model, vocabulary, vocabulary)
    millions = count_parameters(jax.eval_shape(lambda: init_params(model, jax.random.key(0)))) / 1e6
    assert abs(millions - script("rows").FOUND[name].millions) <= (1.2 if name == "big" else 0.5)


@pytest.mark.parametrize(
    ("paper", "ours", "base", "words"),
    [
        (5.0, [7.0, 8.0], [5.0, 6.0], "as the paper"),
        (5.0, [3.0, 4.0], [5.0, 6.0], "opposite"),
        (5.0, [5.5, 8.0], [5.0, 6.0], "as the paper (?)"),
        (5.0, [4.0, 5.0], [5.0, 6.0], "opposite (?)"),
        (4.0, [3.0, 4.0], [5.0, 6.0], "as the paper"),
        (4.5, [7.0, 8.0], [5.0, 6.0], "paper: none"),
        (5.0, [7.0], [5.0, 6.0], "as the paper (?)"),
    ],
)
def test_direction_beside_a_base_of_4_5(script, paper, ours, base, words):
    effects = script("effects")
    assert effects.effect(paper, 4.5, effects.spread(ours), effects.spread(base)).words() == words


def test_a_bar_of_the_picture_crosses_the_line_where_seeds_mix(script):
    effects, pictures = script("effects"), script("pictures")
    base = effects.spread([5.0, 6.0])
    for ours in ([3.0, 4.0], [4.0, 5.5], [5.2, 5.4], [4.0, 9.0], [6.5, 7.0]):
        row = effects.spread(ours)
        change = pictures.change_in_loss("row", 5.0, 4.0, row, base)
        assert (change.lower > 0 or change.upper < 0) == effects.effect(5.0, 4.0, row, base).is_decided
        assert change.lower < change.ours < change.upper
        assert change.paper == pytest.approx(math.log(5 / 4))


def test_how_often_seeds_lie_apart_by_chance(script):
    """Two and two, in order: aabb and bbaa of the six."""
    chance_apart = script("effects").chance_apart
    assert chance_apart(2) == pytest.approx(2 / 6)
    assert chance_apart(1) == 1


def test_operations_are_the_mean_over_the_batches_of_an_epoch(script, monkeypatch):
    trials = script("trials")
    monkeypatch.setattr(trials, "model_flops", lambda config, here, batch: batch.source.ids.shape[1])
    config = sweep_of("paper_table3", "small").settings({"row": "base"})
    assert trials.mean_flops(config, (((8, 10, 16), 3), ((8, 20, 16), 1))) == (3 * 10 + 20) / 4


def test_trials_are_found_by_their_settings_wherever_they_lie(script, tmp_path, monkeypatch):
    trials = script("trials")
    sweep = sweep_of("paper_table3", "small", ("base", "A heads/8"))
    monkeypatch.setattr(trials, "translated", lambda folder, config, split, average: (folder, split, average))
    monkeypatch.setattr(trials, "measured", lambda row, seed, folder, side: (row, seed, *side))
    for number, point in enumerate(reversed(sweep.points())):
        config, folder = sweep.settings(point), trials.folder_of(tmp_path, number)
        folder.mkdir(parents=True)
        elsewhere = replace(config, data=replace(config.data, directory="elsewhere"))
        (folder / "config.json").write_text(json.dumps(to_json(elsewhere)))
        (folder / "outcome.json").write_text(json.dumps({"reason": "interrupted" if number == 2 else "finished"}))
    found, missing = trials.finished_trials(sweep, tmp_path, "test", len)
    assert [(row, seed, folder.name) for row, seed, folder, *_ in found] == [
        ("base", 0, "0003"),
        ("A heads/8", 0, "0001"),
        ("A heads/8", 1, "0000"),
    ]
    assert [rest for *_, rest in found] == [len("base"), len("A heads/8"), len("A heads/8")]
    assert missing == ["base, seed 1"]
    other = sweep_of("paper_table3", "small", ("base", "C d_ff/2"))
    assert trials.finished_trials(other, tmp_path, "test", len)[1] == [
        "base, seed 1",
        "C d_ff/2, seed 0",
        "C d_ff/2, seed 1",
    ]


def made_up(script, perplexities: list[float], bleus: list[float]):
    spread, row_results = script("effects").spread, script("row_results")
    mean = sum(bleus) / len(bleus)
    return row_results.RowResult(
        spread(perplexities), spread(bleus), Estimate(mean, mean - 1, mean + 2), 1_234_567, 3.21e18, 0.5, 2e12
    )


def measured(script, sweep, results, tmp_path, scale: str, ceiling: float = 0.0):
    flags = argparse.Namespace(scale=scale, ceiling=ceiling, output=tmp_path)
    missing = ["C d_ff/2, seed 1"]
    return script("running").Measured(flags, sweep.rows, results, 2, ["tok:13a"], ["abc"], missing)


def test_table_3_puts_paper_beside_ours(script, tmp_path):
    sweep = sweep_of("paper_table3", "small", ("base", "A heads/8", "C d_ff/2"))
    results = {
        "base": made_up(script, [60.0, 70.0], [10.0, 11.0]),
        "A heads/8": made_up(script, [80.0, 90.0], [10.5, 12.5]),
        "C d_ff/2": made_up(script, [50.0, 55.0], [8.0, 9.0]),
    }
    document, text = script("run").report(measured(script, sweep, results, tmp_path, "small", ceiling=8.0))
    shown = to_markdown(document)
    lines = [line for line in shown.split("\n") if line.startswith("| ")]
    assert [len(line.split(" | ")) for line in lines] == [13] * 5
    expected = "| A heads/8 | num_heads=1 | 5.29 | 85.00 (80.00 - 90.00) | as the paper | 24.9 | 11.5 (10.5 - 13.5) | "
    assert lines[3].startswith(f"{expected}opposite (?) |  | 1.23 | 3.2e18 | 0.50 | 25.0%")
    assert "| 52.50 (50.00 - 55.00) | opposite |" in lines[4]
    assert "Only the small scale was run" in shown and "Not there yet: C d_ff/2, seed 1." in shown
    assert "of 2 on perplexity 1, of 1 on BLEU 1" in shown and "lie apart in 33% of all cases" in shown
    assert (tmp_path / "effects.png").read_bytes().startswith(b"\x89PNG")
    rows = {row["row"]: row for row in csv.DictReader(text.splitlines())}
    assert float(rows["C d_ff/2"]["effect on BLEU, ours"]) == -2.0
    assert rows["base"]["effect on BLEU, ours"] == ""
    assert float(rows["A heads/8"]["MFU"]) == 0.25


def test_without_the_base_there_is_no_effect_and_at_the_papers_scale_no_excuse(script, tmp_path):
    sweep = sweep_of("paper_table3", "paper", ("A heads/8",))
    results = {"A heads/8": made_up(script, [5.0], [25.0])}
    document, text = script("run").report(measured(script, sweep, results, tmp_path, "paper"))
    shown = to_markdown(document)
    assert "small" not in shown and "MFU" not in shown and "same direction" not in text
    assert not (tmp_path / "effects.png").exists()


def test_table_2_compares_big_with_the_base_of_its_language(script, tmp_path):
    sweep = sweep_of("paper_table2", "small")
    results = {
        name: made_up(script, [9.0, 9.5], bleus)
        for name, bleus in zip(sweep.rows, ([20.0, 21.0], [24.0, 25.0], [30.0, 31.0], [26.0, 27.0]), strict=True)
    }
    document, text = script("run", "paper_table2").report(measured(script, sweep, results, tmp_path, "small"))
    shown = to_markdown(document)
    effects = [row["effect on BLEU, same direction"] for row in csv.DictReader(text.splitlines())]
    assert effects == ["", "True", "", "False"]
    assert "| 3.3e18 | 3.2e18 |" in shown and "| GNMT + RL | 24.6 | 39.92 | 2.3e19 | 1.4e20 |" in shown
    assert "mean of the last 5 checkpoints, on the test split" in shown


def test_flags_of_the_sweep_are_passed_on_and_others_refused(script, tmp_path, capsys):
    running = script("running")
    given = ["--scale=small", "--data=texts", "--workdir=runs/x", "--rows=base, A heads/8", "--workers=2"]
    flags = running.read_flags("words", tmp_path, [*given, "--config.seed=3", "--study=file"])
    assert running.sweep_command(Path("there"), flags) == [
        "sweep",
        "--sweep=there/sweep.py:small",
        "--workdir=runs/x",
        "--rows=base,A heads/8",
        "--workers=2",
        "--config.data.directory=texts",
        "--config.seed=3",
        "--study=file",
    ]
    for wrong in (["--config.seed", "3"], ["base"]):
        with pytest.raises(SystemExit):
            running.read_flags("words", tmp_path, [*given, *wrong])
    with pytest.raises(SystemExit):
        running.read_flags("words", tmp_path, ["--scale=small", "--workdir=runs/x"])
    assert "--data: needed with --scale=small" in capsys.readouterr().err
