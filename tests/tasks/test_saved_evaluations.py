"""Evaluations on disk: what is written comes back, and nothing else is taken for it."""

import json

import pytest

from transformer_jax.config import DataError, DecodingConfig, from_dict
from transformer_jax.evaluation.scores import EvaluationReport, score_translations
from transformer_jax.files.checked_json import without_crc
from transformer_jax.tasks.saved_evaluations import (
    ScoredCheckpoint,
    ensemble_suffix,
    evaluation_stem,
    find_evaluation,
    read_evaluation,
    save_evaluation,
    saved_reports,
    stem_of,
    stem_of_text,
)
from transformer_jax.tasks.translation.evaluator import TranslationEvaluation

# Only "\n" ends a line.
LINES = ["a b\rc", "", "d\u2028e"]


def scored(lines: list[str], averaged: int = 1) -> ScoredCheckpoint:
    report = EvaluationReport(
        "test", score_translations(lines, lines), 1.0, 2.7, 10.0, len(lines), DecodingConfig(), "float32"
    )
    return ScoredCheckpoint(TranslationEvaluation(report, lines), 30, averaged)


def test_names_say_what_was_searched_otherwise():
    trained = from_dict({})
    used = from_dict({"decoding": {"beam_width": 1, "length_penalty": 0.2}, "mesh": {"data": 2}})
    assert evaluation_stem("test", 30, 1, trained, trained) == "evaluation-test-30"
    name = evaluation_stem("a/b", 30, 3, trained, used)
    assert name == "evaluation-a-b-30-average3-beam_width=1-length_penalty=0.2"

    trained = from_dict({"data": {"source": "text", "train": "a.en,a.de", "test": "b.en,b.de"}})
    used = from_dict({"data": {"source": "text", "train": "a.en,a.de", "test": "/news/c.en,/news/c.de"}})
    assert evaluation_stem("validation", 30, 1, trained, used) == "evaluation-validation-30"
    assert evaluation_stem("test", 30, 1, trained, used).startswith("evaluation-test-30-test=c.de~")
    other = from_dict({"data": {"source": "text", "train": "a.en,a.de", "test": "b.en,b.de", "test_split": "other"}})
    assert evaluation_stem("other", 30, 1, trained, other) == "evaluation-other-30"


def test_names_say_who_took_part_and_no_two_ensembles_share_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert ensemble_suffix("runs/a", ()) == ""
    assert ensemble_suffix("runs/a", ("runs/b/:10", f"{tmp_path}/runs/c:4000")) == "-ensemble+b-10+c-4000"
    folders = ("trials/0003", "t1/trials/0003", "t2/trials/0003", "t2/trials/0004", "t1/trials/../../t2/trials/0003")
    names = [ensemble_suffix("trials/0001", (f"{folder}:30",)) for folder in folders]
    assert names[0] == "-ensemble+0003-30"
    assert len(set(names)) == 4
    assert names[4] == names[2]
    assert all(name.startswith("-ensemble+0003~") and len(name) < 40 for name in (names[1], names[2]))


def test_what_is_written_comes_back(tmp_path):
    stem = tmp_path / "evaluation-test-30-length_penalty=0.2"
    saved = save_evaluation(stem, scored(LINES))
    assert read_evaluation(stem).hypotheses == saved.hypotheses == LINES
    assert read_evaluation(stem).report == json.loads(json.dumps(saved.report))
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"{stem.name}.json", f"{stem.name}.txt"]
    assert [stem_of(file) for file in files] == [stem, stem]


def test_only_the_same_search_will_do(tmp_path):
    stem = tmp_path / "evaluation-test-30"
    save_evaluation(stem, scored(LINES))
    assert find_evaluation(stem, from_dict({})) is not None
    assert find_evaluation(stem, from_dict({"decoding": {"beam_width": 1}})) is None
    assert find_evaluation(tmp_path / "evaluation-test-31", from_dict({})) is None
    older = without_crc(json.loads((tmp_path / "evaluation-test-30.json").read_text()))
    assert stem_of_text(stem, older) == stem
    other = stem_of_text(stem, older | {"text": 64 * "0"})
    assert other.name == "evaluation-test-30-text~00000000" and find_evaluation(other, from_dict({})) is None
    del older["decoding"]["stop"], older["text"]
    (tmp_path / "evaluation-test-30.json").write_text(json.dumps(older))
    assert find_evaluation(stem, from_dict({})) is not None


def test_damaged_and_crafted_files_are_passed_over_or_refused(tmp_path):
    stem = tmp_path / "evaluation-test-30"
    for key, value in (("scores", []), ("decoding", 1)):
        saved = save_evaluation(stem, scored(LINES))
        (tmp_path / f"{stem.name}.json").write_text(json.dumps(saved.report | {key: value}))
        assert saved_reports(tmp_path)[0] == {}
    save_evaluation(stem, scored(LINES))
    for name, text in (("half", '{"scores":'), ("notes", "[1]")):
        (tmp_path / f"evaluation-{name}.json").write_text(text)
        with pytest.raises(DataError, match="not the scores that evaluate writes"):
            read_evaluation(tmp_path / f"evaluation-{name}")
    reports, problems = saved_reports(tmp_path)
    assert [*reports] == ["evaluation-test-30.json"]
    assert [problem.partition(": ")[0] for problem in problems] == [
        f"{tmp_path}/evaluation-{name}.json" for name in ("half", "notes")
    ]
    (tmp_path / "evaluation-lost.txt").write_text("a\n")
    assert "evaluation-lost.json: no such file" in "".join(saved_reports(tmp_path)[1])
    translations = tmp_path / f"{stem.name}.txt"
    translations.write_bytes(translations.read_bytes().replace(b"a", b"o", 1))
    with pytest.raises(DataError, match=r"evaluation-test-30\.txt: not the translations that were scored"):
        read_evaluation(stem)
    (tmp_path / f"{stem.name}.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, match=r"evaluation-test-30\.txt: not UTF-8 at byte 2"):
        read_evaluation(stem)
