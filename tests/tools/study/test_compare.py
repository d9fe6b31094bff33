import csv
import json

import numpy as np
import pytest

from transformer_jax.__main__ import main

REFERENCES = [" ".join(words) for words in np.random.default_rng(0).choice(list("abcdefghij"), (20, 8))]
# Right but for the first sentence, and wrong but for the first.
GOOD = ["x x x x", *REFERENCES[1:]]
BAD = [REFERENCES[0], *("x " + line[2:] for line in REFERENCES[1:])]


def write_data(folder, references=REFERENCES):
    """A text corpus with the split ``test``; returns the settings that name it."""
    folder.mkdir()
    for language, lines in (("en", [f"source {n}" for n in range(len(references))]), ("de", references)):
        (folder / f"test.{language}").write_text("".join(f"{line}\n" for line in lines))
    return {"data": {"source": "text", "directory": str(folder)}}


@pytest.fixture
def sides(make_run, save_translations, tmp_path):
    """Two evaluations of the same split of the same data."""
    settings = write_data(tmp_path / "data")
    runs = [make_run("bad", settings), make_run("good", {**settings, "seed": 1})]
    for run, lines in zip(runs, (BAD, GOOD), strict=True):
        save_translations(run, "test", 7, lines, REFERENCES)
    return [run / "evaluation-test-7.txt" for run in runs]


@pytest.fixture
def refused(tmp_path, capsys):
    """Whether comparing ``sides`` is refused with ``message``."""

    def is_refused(message, *sides):
        code = main(["compare", *map(str, sides), f"--output={tmp_path / 'out'}", "--resamples=100"])
        return code == 2 and message in capsys.readouterr().err

    return is_refused


def read_rows(file):
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_the_better_one_is_found_and_the_sentences_that_say_so(sides, tmp_path, capsys):
    output = tmp_path / "out"
    assert main(["compare", *map(str, sides), f"--output={output}", "--resamples=100", "--examples=2"]) == 0
    first, second = "bad/evaluation-test-7.txt", "good/evaluation-test-7.txt"
    conclusion = f"BLEU: {second} is better, and chance is an unlikely explanation."
    assert conclusion in " ".join(capsys.readouterr().out.split())
    bleu, chrf = read_rows(output / "compare.csv")
    assert (bleu["metric"], chrf["metric"]) == ("BLEU", "chrF")
    for row in (bleu, chrf):
        assert float(row["p_value"]) < 0.05 and float(row["difference lower"]) > 0
        assert float(row[f"{second} value"]) - float(row[f"{first} value"]) == float(row["difference value"])
    assert bleu["signature"].startswith("nrefs:1|bs:100|ar:100|seed:12345|")
    sentences = read_rows(output / "compare-sentences.csv")
    assert [sentence["reference"] for sentence in sentences] == REFERENCES
    assert [sentences[0][key] for key in ("source", first, second)] == ["source 0", BAD[0], GOOD[0]]
    assert float(sentences[0]["difference"]) < 0 < float(sentences[1]["difference"])
    markdown = (output / "compare.md").read_text()
    assert markdown.count("| line ") == 3
    assert f"{first} has the higher chrF on 1 of 20 sentences." in markdown
    assert "| bad/evaluation-test-7.txt | 0 |" in markdown, "seeds, the setting that differs"
    assert "<h2>Scores</h2>" in (output / "compare.html").read_text()


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([*REFERENCES[:4], "other", *REFERENCES[5:]], "different references in line 5, "),
        (REFERENCES[:-1], "have 20 and 19 references"),
    ],
)
def test_other_references_are_refused(sides, make_run, save_translations, tmp_path, references, message, refused):
    other = make_run("other", write_data(tmp_path / "others", references))
    save_translations(other, "test", 7, GOOD[: len(references)], references)
    assert refused(message, sides[0], other / "evaluation-test-7.txt")
    assert not list((tmp_path / "out").iterdir())


def test_damaged_translations_are_refused(sides, refused):
    scores, lines = sides[1].with_suffix(".json"), sides[1].read_text()
    sides[1].write_text("".join(f"{line}\n" for line in BAD))
    assert refused("evaluation-test-7.txt: not the translations that were scored: their CRC-32 differs", *sides)
    # Files of earlier versions have no CRC-32.
    report = {key: value for key, value in json.loads(scores.read_text()).items() if not key.endswith("crc32")}
    scores.write_text(json.dumps(report))
    assert refused("good/evaluation-test-7: had BLEU 9", *sides)
    sides[1].write_text(lines)
    changed = {block: report[block] | {"chrf": 99.5} for block in ("scores", "metrics")}
    scores.write_text(json.dumps(report | changed))
    assert refused("had chrF 99.50 when it was written", *sides)
    for block, content in changed.items():
        scores.write_text(json.dumps(report | {block: content}))
        assert refused("evaluation-test-7.json", *sides), "the two disagree"
    scores.write_text(json.dumps(report))
    sides[1].write_text("a\n")
    assert refused("1 lines, but evaluation-test-7.json says 20 sentences", *sides)
    sides[1].unlink()
    assert refused("evaluation-test-7.txt: no such file", sides[0], scores)


def test_mistakes_are_told(sides, tmp_path, refused):
    assert refused("give two runs to compare, not 1", sides[0])
    assert refused("A B: both are", sides[0], sides[0])
    assert refused("translated with other settings", *sides, "--config.decoding.beam_width=1")
    assert refused("no config.json in", sides[0], tmp_path)
    assert refused("does not exist", sides[0], tmp_path / "nowhere")
    assert refused("not the scores that evaluate writes", sides[0], sides[1].parent / "config.json")
    assert refused("no checkpoint", sides[0].parent, sides[1])


def test_scores_come_first_and_paths_are_as_typed(sides, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    typed = [str(side.relative_to(tmp_path)) for side in sides]
    assert main(["compare", *typed, "--resamples=100"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Scores\n") and printed.count("\nline ") == 4, (
        "3 in favor of one, the only one of the other"
    )
    written = printed + "".join(file.read_text() for file in (tmp_path / "compare").iterdir())
    assert str(tmp_path) not in written and "  compare/compare.md" in printed
    assert main(["report", "bad", "./good", "--output=report"]) == 0
    texts = [file.read_text() for file in (tmp_path / "report").glob("report.*")]
    assert (
        str(tmp_path) not in capsys.readouterr().out + "".join(texts) and "| good | " in texts[0] + texts[1] + texts[2]
    )
