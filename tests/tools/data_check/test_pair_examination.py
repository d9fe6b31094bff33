"""A pair of files is examined the same way wherever it enters: every fault is reported, and clean
text causes no warning."""

import random

import numpy as np
import pytest

from transformer_jax.__main__ import main
from transformer_jax.config import DataError, from_dict
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.runs import trainer
from transformer_jax.runs.run import TrainingDiverged
from transformer_jax.tools.data_check.examined_texts import examine_pairs, examine_run
from transformer_jax.tools.data_check.pair_examination import PairText, TrainingWords, examine

LINES = 2400
OTHER_LETTERS = {letter: letter + 900 for letter in range(97, 123)}


def words_of(language, number, rng):
    return ["".join(rng.choices(language, k=rng.randrange(2, 9))) for _ in range(number)]


@pytest.fixture(scope="module")
def pairs():
    """Translated word for word, with other letters, another order of words, and fillers."""
    rng = random.Random(0)
    source, target = words_of("abcdefghi", 400, rng), words_of("jklmnopqr", 400, rng)
    frequent = np.arange(1, 401) ** -0.8
    translations = []
    for _ in range(LINES):
        indices = rng.choices(range(400), frequent.tolist(), k=rng.randrange(4, 20))
        there = [target[index] for index in indices] + rng.choices(target[:5], k=rng.randrange(3))
        translations.append(
            SentencePair(" ".join(source[index] for index in indices).capitalize(), " ".join(there).capitalize())
        )
    return translations


def text(pairs, called="the validation text"):
    return PairText(called, ("v.en", "v.fr"), len(pairs), np.arange(1, len(pairs) + 1), pairs)


@pytest.fixture(scope="module")
def training(pairs):
    return TrainingWords(text(pairs[:2000], "the training text")._replace(names=("t.en", "t.fr")))


def shuffled(pairs, share):
    rng = random.Random(1)
    indices = rng.sample(range(len(pairs)), round(share * len(pairs)))
    moved = dict(zip(indices, rng.sample(indices, len(indices)), strict=True))
    return [pair._replace(target=pairs[moved.get(index, index)].target) for index, pair in enumerate(pairs)]


def reversed_sides(pairs, share):
    rng = random.Random(2)
    return [SentencePair(*pair[::-1]) if rng.random() < share else pair for pair in pairs]


def shifted(pairs, lag, begin=0):
    targets = [pair.target for pair in pairs]
    targets = (
        [*targets[:begin], *["Jk lm"] * lag, *targets[begin:]] if lag > 0 else targets[:begin] + targets[begin - lag :]
    )
    return [pair._replace(target=target) for pair, target in zip(pairs, targets, strict=False)]


def kinds(examination):
    return [finding.kind for finding in examination.findings]


def serious(examination):
    return [finding.kind for finding in examination.findings if finding.is_serious]


@pytest.mark.parametrize("number", [30, 100, 400])
def test_clean_text_has_no_fault(pairs, training, number):
    assert examine(training.text, training).findings == []
    examination = examine(text(pairs[-number:]), training)
    assert examination.findings == []
    assert ("reversed" in examination.unchecked) == (number < 60)


@pytest.mark.parametrize("number", [60, 400])
@pytest.mark.parametrize("change", [
    lambda pairs: reversed_sides(pairs, 1),
    lambda pairs: reversed_sides(pairs, 0.25),
    lambda pairs: reversed_sides(pairs, 0.5),
    lambda pairs: shifted(pairs, 1),
    lambda pairs: shifted(pairs, -2),
    lambda pairs: shifted(pairs, 7),
    lambda pairs: shifted(pairs, -15),
    lambda pairs: shifted(pairs, 1, len(pairs) // 2),
    lambda pairs: shuffled(pairs, 0.6),
    lambda pairs: [pair._replace(target="") for pair in pairs],
    lambda pairs: [pair._replace(target=pair.source) for pair in pairs],
    lambda pairs: [pair._replace(target=pair.target.translate(OTHER_LETTERS)) for pair in pairs],
])  # fmt: skip
def test_each_fault_is_told_against_the_training_text(pairs, training, number, change):
    assert kinds(examine(text(change(pairs[-number:])), training))


def test_the_line_and_lag_of_a_shift_are_told(pairs, training):
    (finding,) = examine(text(shifted(pairs[2000:], 9, 200)), training).findings
    assert finding.kind == "shifted" and "line n of v.en translates line n+9 of v.fr" in finding.text
    begin = int(finding.text.partition("from line ")[2].partition(" ")[0])
    assert abs(begin - 201) <= 16


def found(changed, thorough=True):
    """The examination of a training text."""
    training_text = text(changed)
    return examine(training_text, TrainingWords(training_text), thorough=thorough)


@pytest.mark.slow
def test_large_faults_of_the_training_text_itself(pairs):
    assert kinds(found(shifted(pairs, -1))) == ["shifted"]
    assert kinds(found(reversed_sides(pairs, 0.5))) == ["reversed"]
    assert kinds(found(shuffled(pairs, 0.6))) == ["mismatched"]


def test_faults_of_the_training_text_itself(pairs):
    assert kinds(found(shifted(pairs, 7))) == ["shifted"]
    assert kinds(found(reversed_sides(pairs, 0.25))) == ["reversed"]
    assert kinds(found(shuffled(pairs, 0.12))) == kinds(found(shuffled(pairs, 0.22), thorough=False)) == ["mismatched"]
    assert "fewer than 8% of the lines" in found(pairs).unchecked["mismatched"] and not found(pairs, False).unchecked
    assert kinds(found(shuffled(pairs, 1))) == ["unrelated"]
    same = [pair._replace(source=pair.target[::-1]) for pair in pairs]
    assert kinds(found(same)) == []
    assert set(found(pairs[:40]).unchecked) == {"reversed", "shifted", "mismatched"}


def test_what_is_serious(pairs, training):
    few = pairs[-100:]
    assert serious(examine(text(reversed_sides(few, 1)), training)) == ["swapped"]
    assert serious(examine(text([pair._replace(source=" ") for pair in few]), training)) == ["empty"]
    assert serious(examine(text([pair._replace(target=pair.source) for pair in few]))) == ["copies"]
    one = examine(text([few[0]._replace(target=""), *few[1:]]), training)
    assert (kinds(one), serious(one)) == (["empty"], [])
    assert "v.fr: 1 of 100 lines is empty, the first is line 1" in one.findings[0].text
    # As translations and scores take lines for empty.
    some = [few[0]._replace(target="\u200b"), few[1]._replace(target="\ufeff\u200e"), *few[2:]]
    assert "v.fr: 2 of 100 lines are empty, the first is line 1" in examine(text(some)).findings[0].text
    assert serious(examine(text([pair._replace(source="\u200b") for pair in few]))) == ["empty"]
    for pairs, problem in (([], "the file is empty"), ([SentencePair("", "a")], "the only line is empty")):
        assert examine(text(pairs)).findings[0].text == f"v.en: {problem}"
    assert serious(examine(text([SentencePair("a\rb\rc", "d")]))) == ["carriage returns"]
    table = examine(text([pair._replace(source=f"{number}\t{pair.source}") for number, pair in enumerate(few)]))
    assert serious(table) == ["columns"] and "2 columns" in table.findings[0].text
    inside = examine(text([few[0]._replace(target="x\ry"), *few[1:]]), training)
    assert (kinds(inside), serious(inside)) == (["carriage returns"], [])


def test_copies_and_invisible_lines_are_no_wrong_translations(pairs, training):
    few = pairs[-400:]
    copied = [pair._replace(target=pair.source) if index % 3 == 0 else pair for index, pair in enumerate(few)]
    (finding,) = examine(text(copied), training).findings
    assert finding.kind == "copies" and "left out" not in finding.text
    assert "left out" in examine(text(copied)).findings[0].text
    some = [pair._replace(target=pair.source) if index % 20 == 0 else pair for index, pair in enumerate(few)]
    assert kinds(examine(text(some), training)) == ["copies"]
    for blank in ("\u200b", "\ufeff", "\u00a0\u3000"):
        assert serious(examine(text([pair._replace(target=blank) for pair in few]), training)) == ["empty"]


def test_lines_of_misread_bytes_and_duplicates_are_told(pairs, training):
    few = pairs[-200:]
    french = " \u00e9t\u00e9 \u00ab\u00a0\u00e9\u00a0\u00bb"
    assert examine(text([pair._replace(target=pair.target + french) for pair in few]), training).findings == []
    for encoding in ("latin-1", "cp1252"):
        wrong = " \u00f6\u00fc".encode().decode(encoding)
        assert kinds(examine(text([pair._replace(target=pair.target + wrong) for pair in few]), training)) == [
            "misread"
        ]
    (twice,) = examine(text([few[index // 2] for index in range(400)]), training).findings
    assert "50% of the pairs of v.en and v.fr repeat an earlier pair, the first is line 2" in twice.text


def test_few_lines_of_short_sentences_are_not_reversed():
    """Lines with hardly more than a frequent word: by chance some look like the other side."""
    rng = random.Random(5)
    source, target = words_of("abcdefghi", 400, rng), words_of("jklmnopqr", 400, rng)
    source[:2] = target[:2] = ["hm", "oh"]
    weights = (np.arange(1, 401) ** -0.8).tolist()
    lines = [rng.choices(range(400), weights, k=rng.randrange(2, 6)) for _ in range(LINES)]
    short = [SentencePair(*(" ".join(side[index] for index in line) for side in (source, target))) for line in lines]
    words = TrainingWords(text(short[:1500], "the training text"))
    for start in range(1500, LINES, 60):
        few = text(short[start : start + 60])
        assert "reversed" not in kinds(examine(few)) + kinds(examine(few, words))
        assert "reversed" in kinds(examine(text(reversed_sides(few.pairs, 0.25)), words))


def test_rewriting_in_one_language_is_not_translation(pairs):
    """Copies with changes, and reversed words: sides have the same words, so that none can be
    swapped."""
    rng = random.Random(3)
    changed = []
    for pair in pairs:
        words = pair.source.split()
        words[rng.randrange(len(words))] = "changed"
        changed.append(SentencePair(pair.source, " ".join(words)))
    for rewritten in (changed, [SentencePair(pair.source, " ".join(pair.source.split()[::-1])) for pair in pairs]):
        training_text = text(rewritten[:2000])
        words = TrainingWords(training_text)
        assert examine(training_text, words).findings == []
        examination = examine(text(rewritten[2000:]), words)
        assert examination.findings == [] and "both sides" in examination.unchecked["swapped"]
        assert examine(text(reversed_sides(rewritten[2000:], 1)), words).findings == []


def test_other_tasks_have_no_false_alarm(pairs):
    """Lines that answer each other, sums, and labels."""
    rng = random.Random(4)
    numbers = [(rng.randrange(1000), rng.randrange(1000)) for _ in range(LINES)]
    for task in (
        [SentencePair(one.source, other.source) for one, other in zip(pairs, [*pairs[50:], *pairs[:50]], strict=True)],
        [SentencePair(f"{one} + {other}", str(one + other)) for one, other in numbers],
        [pair._replace(target="long" if len(pair.source) > 50 else "short") for pair in pairs],
    ):
        training_text = text(task[:2000])
        words = TrainingWords(training_text)
        assert examine(training_text, words, thorough=True).findings == examine(text(task[2000:]), words).findings == []


def test_another_form_than_in_training(pairs, training):
    few = [SentencePair(pair.source + ", a.", pair.target + ", j.") for pair in pairs[:200]]
    raw = TrainingWords(text([SentencePair(pair.source + ", a.", pair.target + ", j.") for pair in pairs]))
    assert examine(text(few), raw).findings == []
    for form, changed in (
        ("lower-cased", [SentencePair(*map(str.lower, pair)) for pair in few]),
        ("in capitals", [SentencePair(*map(str.upper, pair)) for pair in few]),
        ("tokenized", [SentencePair(*(side.replace(",", " ,").replace(".", " .") for side in pair)) for pair in few]),
        ("subwords", [SentencePair(*(side.replace(" ", "@@ ") for side in pair)) for pair in few]),
    ):
        findings = examine(text(changed), raw).findings
        assert [form in finding.text for finding in findings] == [True, True]
        assert any(form in note for note in examine(text(changed)).notes)


@pytest.fixture
def files(tmp_path, pairs):
    def write(name, pairs):
        for language, side in zip(("en", "fr"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side))
        return f"{tmp_path}/{name}.en,{tmp_path}/{name}.fr"

    write("train", pairs[:2000])
    write("valid", pairs[2000:])
    return write


def config(tmp_path, **data):
    return from_dict({"data": {"source": "text", "train": f"{tmp_path}/train.{{en,fr}}", **data}})


def test_a_run_is_refused_before_time_is_spent(files, tmp_path, pairs):
    valid = f"{tmp_path}/valid.{{en,fr}}"
    assert examine_run(config(tmp_path, validation=valid, test=valid)) == []
    swapped = files("swapped", reversed_sides(pairs[2000:], 1))
    for wrong in ({"validation": swapped}, {"validation": valid, "test": swapped}):
        with pytest.raises(DataError, match="swapped.*set --config.data.faults=warn"):
            examine_run(config(tmp_path, **wrong))
        (warning,) = examine_run(config(tmp_path, **wrong, faults="warn"))
        assert warning.startswith("WARNING: the sides of the") and "are swapped" in warning
    with pytest.raises(DataError, match="data.validation: source and target are in another order"):
        examine_run(config(tmp_path, validation=f"{tmp_path}/valid.{{fr,en}}"))
    assert "are training pairs" in examine_run(config(tmp_path, validation=f"{tmp_path}/train.{{en,fr}}"))[0]


def test_files_of_a_user_are_compared_with_the_training_text(files, tmp_path, pairs):
    run, some = config(tmp_path), pairs[2000:2060]
    assert examine_pairs(run, ("a.en", "a.fr"), some) == []
    for names, texts in ((("a", "b"), reversed_sides(some, 1)), (("a.fr", "a.en"), some)):
        with pytest.raises(DataError, match="another order|are swapped"):
            examine_pairs(run, names, texts)
    assert "n+1 of a.fr" in examine_pairs(run, ("a.en", "a.fr"), shifted(some, 1))[0]
    (tmp_path / "train.en").unlink()
    (remark,) = examine_pairs(run, ("a.en", "a.fr"), some)
    assert remark.startswith("not checked:") and "training text, which was not read" in remark


def test_each_corpus_of_a_mixture_is_examined(files, tmp_path, pairs):
    files("bad", shifted(pairs[:2000], 1))
    train = f"good={tmp_path}/train.{{en,fr}} bad={tmp_path}/bad.{{en,fr}}"
    (warning,) = examine_run(
        from_dict({"data": {"source": "mixture", "train": train, "held_out": 20, "tags": "good=<g>"}})
    )
    assert "the training text of bad are shifted: from line 1 to the end, line n of bad.en" in warning
    assert examine_run(from_dict({"task": "language_model"})) == examine_run(from_dict({})) == []


def test_train_prints_the_warning(files, tmp_path, pairs, monkeypatch, capsys):
    def diverge(*_: object, **__: object) -> None:
        raise TrainingDiverged

    files("bad", shifted(pairs[:2000], 1))
    monkeypatch.setattr(trainer, "run_training", diverge)
    settings = {"source": "text", "directory": "", "train": f"{tmp_path}/bad.{{en,fr}}", "held_out": 20}
    overrides = [f"--config.data.{name}={value}" for name, value in settings.items()]
    overrides += ["--config.data.source_language=en", "--config.data.target_language=fr"]
    assert main(["train", "--config=quickstart", *overrides, f"--workdir={tmp_path}/run"]) == 1
    assert "WARNING: the sides of the training text are shifted: from line 1 " in capsys.readouterr().err


def test_columns_of_a_table_are_named(tmp_path):
    rows = [f"{number}\tA man number {number}.\tUn homme {number}.\tCC-BY 2.0 #{number}\n" for number in range(9)]
    (tmp_path / "t.tsv").write_text("".join(rows))
    with pytest.raises(DataError, match=r"3 tabs, expected exactly one.*cut -f2,3 .*t.tsv > two.tsv"):
        examine_run(from_dict({"data": {"source": "text", "train": f"{tmp_path}/t.tsv", "target_language": "fr"}}))
