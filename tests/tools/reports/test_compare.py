"""Two saved evaluations: what is compared, what is refused, and what comes out."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from transformer_jax.__main__ import main

LETTERS = list("abcdefghij")
GENERATOR = np.random.default_rng(0)
REFERENCES = [" ".join(GENERATOR.choice(LETTERS, size=8)) for _ in range(20)]
# Right but for the first sentence, and wrong but for the first.
GOOD = ["x x x x", *REFERENCES[1:]]
BAD = [REFERENCES[0], *("x " + line[2:] for line in REFERENCES[1:])]


def write_data(folder: Path, references: list[str] = REFERENCES) -> dict:
    """A text corpus with the split ``test``; returns the settings that name it."""
    folder.mkdir()
    for language, lines in (("en", [f"source {n}" for n in range(len(references))]), ("de", references)):
        (folder / f"test.{language}").write_text("".join(f"{line}\n" for line in lines))
    return {"data": {"source": "text", "directory": str(folder)}}


@pytest.fixture
def sides(make_run, save_translations, tmp_path) -> list[Path]:
    """Two evaluations of the same split of the same data."""
    settings = write_data(tmp_path / "data")
    runs = [make_run("bad", settings), make_run("good", {**settings, "seed": 1})]
    for run, lines in zip(runs, (BAD, GOOD), strict=True):
        save_translations(run, "test", 7, lines, REFERENCES)
    return [run / "evaluation-test-7.txt" for run in runs]


def compare(sides: list[Path], output: Path, *flags: str) -> int:
    return main(["compare", *map(str, sides), f"--output={output}", "--resamples=100", *flags])


def read_rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_the_better_one_is_found_and_the_sentences_that_say_so(sides, tmp_path, capsys):
    output = tmp_path / "out"
    assert compare(sides, output, "--examples=2") == 0
    printed = capsys.readouterr().out
    first, second = "bad/evaluation-test-7.txt", "good/evaluation-test-7.txt"
    assert f"BLEU: {second} is better, and chance is an unlikely explanation." in " ".join(printed.split())
    bleu, chrf = read_rows(output / "compare.csv")
    assert (bleu["metric"], chrf["metric"]) == ("BLEU", "chrF")
    for row in (bleu, chrf):
        assert float(row["p_value"]) < 0.05
        assert float(row["difference lower"]) > 0
        assert float(row[f"{second} value"]) - float(row[f"{first} value"]) == float(row["difference value"])
    assert bleu["signature"].startswith("nrefs:1|bs:100|seed:12345|")
    sentences = read_rows(output / "compare-sentences.csv")
    assert [sentence["reference"] for sentence in sentences] == REFERENCES
    assert sentences[0]["source"] == "source 0"
    assert (sentences[0][first], sentences[0][second]) == (BAD[0], GOOD[0])
    assert float(sentences[0]["difference"]) < 0 < float(sentences[1]["difference"])
    markdown = (output / "compare.md").read_text()
    assert markdown.count("| line ") == 3
    assert f"{first} has the higher chrF on 1 of 20 sentences." in markdown
    assert "| seed | 0 | 1 |" in markdown or "| bad/evaluation-test-7.txt | 0 |" in markdown
    assert "<h2>Scores</h2>" in (output / "compare.html").read_text()


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([*REFERENCES[:4], "other", *REFERENCES[5:]], "different references in line 5, "),
        (REFERENCES[:-1], "have 20 and 19 references"),
    ],
)
def test_other_references_are_refused(sides, make_run, save_translations, tmp_path, references, message, capsys):
    other = make_run("other", write_data(tmp_path / "others", references))
    save_translations(other, "test", 7, GOOD[: len(references)], references)
    assert compare([sides[0], other / "evaluation-test-7.txt"], tmp_path / "out") == 2
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


def test_damaged_translations_are_refused(sides, tmp_path, capsys):
    scores, lines = sides[1].with_suffix(".json"), sides[1].read_text()
    sides[1].write_text("".join(f"{line}\n" for line in BAD))
    assert compare(sides, tmp_path / "out") == 2
    assert "good/evaluation-test-7: had BLEU 9" in capsys.readouterr().err
    sides[1].write_text(lines)
    report = json.loads(scores.read_text())
    for block in ("scores", "metrics"):
        scores.write_text(json.dumps(report | {block: report[block] | {"chrf": 99.5}}))
        assert compare(sides, tmp_path / "out") == 2
        assert "had chrF 99.50 when it was written" in capsys.readouterr().err
    sides[1].write_text("a\n")
    assert compare(sides, tmp_path / "out") == 2
    assert "1 lines, but evaluation-test-7.json says 20 sentences" in capsys.readouterr().err
    sides[1].unlink()
    assert compare([sides[0], sides[1].with_suffix(".json")], tmp_path / "out") == 2
    assert "evaluation-test-7.txt: no such file" in capsys.readouterr().err


def test_mistakes_are_told(sides, tmp_path, capsys):
    for arguments, message in (
        (sides[:1], "give two runs to compare, not 1"),
        ([sides[0], sides[0]], "A B: both are"),
        (
            [*sides, "--config.decoding.beam_width=1"],
            "was translated with other settings; give its run directory instead",
        ),
        ([sides[0], tmp_path], "no config.json in"),
        ([sides[0], sides[1].parent / "config.json"], "config.json: not the scores that evaluate writes"),
        ([sides[0].parent, sides[1]], "no checkpoint"),
    ):
        assert main(["compare", *map(str, arguments), f"--output={tmp_path / 'out'}"]) == 2
        assert message in capsys.readouterr().err
