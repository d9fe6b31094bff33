"""Remarks on input that a model never saw, and on output that was cut."""

import base64
import json
import unicodedata
from dataclasses import replace

import numpy as np
import pytest

from transformer_jax.array_types import EOS_ID, NUM_SPECIAL_IDS, UNK_ID
from transformer_jax.data.pair_encoding import flattened
from transformer_jax.data.store_statistics import SideCounts, SideStatistics
from transformer_jax.data.text_files import is_invisible, visible
from transformer_jax.data.tokenizers.listed import ByteTokenizer, CharacterTokenizer, WordTokenizer
from transformer_jax.data.tokenizers.subword import MappedSubwordTokenizer, train_subword_tokenizer
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.tasks.remarks import CUT, REPEATS, Remarks, TrainingInput, remarks_on_output, repeats

TEXT = ["the cat sleeps", "a dog barks at the small cats"] * 20
# In Arabic, Hindi, Thai, Japanese, Hebrew, Turkish, Greek and Korean; joined emoji, combining
# marks, other spaces.
NEVER_SEEN = ["قطة", "बिल्ली", "แมว", "猫", "חתול", "ğıİ", "γάτα", "고양이", "👩\u200d👩\u200d👧", "e\u0301", "（", "𝒳"]
BLANK = [
    "",
    " ",
    "\t \t",
    "\u00a0\u3000\u2009",
    "\u200b",
    "\ufeff\u200e\u200f",
    "\u0007",
    "\u2028\u0085",
    "\ufe0f",
    "\u3164\u115f",
    "\u00ad\u2060",
]


def tokenizer_of(kind):
    if kind == "byte":
        return ByteTokenizer()
    if kind in ("word", "character"):
        return {"word": WordTokenizer, "character": CharacterTokenizer}[kind].train(TEXT, 200)
    return train_subword_tokenizer(kind, TEXT, {"bpe": 300, "unigram": 280}[kind])


def training_of(tokenizer, texts=TEXT):
    counts = SideCounts()
    counts.add(flattened(tokenizer.encode_batch(texts), tokenizer))
    counts = counts.to_json()
    bits = np.frombuffer(base64.b64decode(counts["seen"]), np.uint8)
    return TrainingInput(counts["longest"] - 1, np.unpackbits(bits, bitorder="little").astype(bool))


def remarks_on(texts, tokenizer, training=None, tags=(), first=1):
    result = Remarks("in.txt", tokenizer, training or TrainingInput(), tags=tags)
    result.read(texts, first)
    return result.lines()


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character", "byte"])
@pytest.mark.parametrize("with_record", [True, False])
def test_characters_that_training_lacks_are_shown(kind, with_record):
    tokenizer = tokenizer_of(kind)
    training = replace(training_of(tokenizer), longest=99) if with_record else TrainingInput()
    assert remarks_on(["the dog", "a cat sleeps"], tokenizer, training) == []
    if kind == "byte" and not with_record:
        return
    for text in NEVER_SEEN:
        (line,) = remarks_on(["the dog", f"the {text} cat", f"{text} a"], tokenizer, training)
        begin = "in.txt: 2 of 3 lines have characters or words that the model never saw in training (first: line 2): "
        assert line.startswith(begin)
        # A seen letter is not shown with its unseen mark.
        assert line.removeprefix(begin) in (visible(text), visible(text).removeprefix("e"))
    (line,) = remarks_on(["猫"], tokenizer, training)
    assert line == "in.txt has characters or words that the model never saw in training: 猫"


def test_a_token_that_occurs_only_in_targets_is_unseen():
    joint = train_subword_tokenizer("bpe", [*TEXT, *["кошка спит"] * 20], 320)
    (line,) = remarks_on(["кошка sleeps", "the cat"], joint, training_of(joint))
    assert "(first: line 1): кошка" in line
    assert remarks_on(["кошка sleeps"], joint) == [], "unknown to a run of an earlier version"


def test_longer_input_than_in_training_is_told():
    tokenizer = tokenizer_of("word")
    training = training_of(tokenizer)
    assert training.longest == 7
    texts = ["the" + " the" * 6, "the cat", "cat" + " cat" * 7, "a" + " a" * 599]
    (line,) = remarks_on(texts, tokenizer, training, first=11)
    count = "in.txt: 2 of 4 lines are longer than every source in training, 7 tokens"
    assert line == f"{count} (first: line 13): it has 8; split them into sentences"
    (line,) = remarks_on(texts, tokenizer)
    assert (
        "1 of 4 lines has over 128 tokens, and how long the sources in training were is not known (first: line 4)"
        in line
    )
    without = Remarks("in.txt", tokenizer, training, has_limit=False)
    without.read(texts)
    assert without.lines() == []


@pytest.fixture(scope="module")
def marian():
    """As nmt_nfkc models: invisible characters vanish."""
    learned = train_subword_tokenizer("bpe", TEXT, 300)
    pieces = learned.pieces(range(NUM_SPECIAL_IDS, 300))

    class Normalizing(MappedSubwordTokenizer):
        def split(self, text):
            return super().split("".join(item for item in text if unicodedata.category(item) not in ("Cc", "Cf")))

    return Normalizing(
        learned.to_bytes(), ["<pad>", "<s>", "</s>", "<unk>", ">>deu<<", ">>fra<<", "__en__", *pieces], ["__en__"]
    )


def test_codes_of_languages_are_those_of_the_model(marian):
    assert remarks_on([">>deu<< the cat", ">>fra<<the cat", ""], marian) == []
    unknown, missing = remarks_on([">>deu<< a", ">>xyz<< a", "a", ">>DEU<< a"], marian)
    assert unknown == (
        "in.txt: 2 of 4 lines begin with a language code that the vocabulary lacks (first: line 2): >>xyz<< >>DEU<<; "
        "it has >>deu<<, >>fra<<"
    )
    assert (
        missing
        == "in.txt: 1 of 4 lines begins with none of the language codes of the model (first: line 3); it has >>deu<<, >>fra<<"
    )
    # A model of one direction.
    assert (
        "begins with a language code that the vocabulary lacks: >>deu<<"
        in remarks_on([">>deu<< a"], tokenizer_of("bpe"))[0]
    )


def test_tags_of_the_training_text_are_asked_for():
    tokenizer = WordTokenizer.train(["<2de> a b <2fr>b"], 64)
    tags = "<2de>", "<2fr>"
    assert remarks_on(["<2de> a", "", "<2fr> b"], tokenizer, tags=tags) == []
    (line,) = remarks_on(["<2de> a", "<2de>b", "b"], tokenizer, tags=tags)
    assert line.startswith("in.txt: 2 of 3 lines begin with none of the tags <2de>, <2fr>, which all training text")
    assert line.endswith("(first: line 2); sed 's/^/<2de> /' adds one")


@pytest.mark.parametrize("kind", ["bpe", "word", "character", "byte", "marian"])
def test_a_blank_text_has_no_visible_character(kind, marian):
    tokenizer = marian if kind == "marian" else tokenizer_of(kind)
    for text in BLANK:
        assert tokenizer.is_blank(text, tokenizer.encode(text))
        assert remarks_on([text], tokenizer) == []
    for text in ("a", ".", "\u200ba", "猫", "\u0301", "👍\ufe0f", "-"):
        assert not tokenizer.is_blank(text, tokenizer.encode(text)), text


def test_a_code_alone_is_blank(marian):
    for text in (">>deu<<", ">>deu<< ", ">>fra<<\u200b", "\u200b"):
        assert marian.is_blank(text, marian.encode(text))
    assert not marian.is_blank(">>deu<< .", marian.encode(">>deu<< ."))
    assert not marian.is_blank(">>xyz<<", marian.encode(">>xyz<<"))


def test_invisible_characters_are_named():
    assert all(map(is_invisible, "".join(BLANK))) and not any(map(is_invisible, "a.猫\u0301（"))
    assert visible("10\u00a0000\u2028 \u200b") == "10<U+00A0>000<U+2028> <U+200B>"


def test_outputs_that_are_cut_or_repeat_are_told():
    assert remarks_on_output([5, 6, EOS_ID], 4, [5]) == ()
    assert remarks_on_output([5, 6, 7, EOS_ID], 4, [5]) == (CUT,)
    assert remarks_on_output([5] * 9, 20, [5, 6]) == (REPEATS,)
    assert remarks_on_output([5] * 9, 20, [6] * 9) == ()
    for ids, expected in (
        ([], False),
        ([5] * 7, False),
        ([5] * 8, True),
        ([4, 5, 6, 7] * 3, True),
        ([9, 8, *[4, 5, 6] * 3, 7, EOS_ID], True),
        ([4, 5, 6, 7] * 2, False),
        ([*range(10)] * 3, False),
        ([*range(40)], False),
    ):
        assert repeats(ids) == expected
    actual = Remarks("in.txt", tokenizer_of("word"), TrainingInput())
    actual.read(["a"] * 9)
    for number in (3, 7):
        actual.read_output(number, (CUT, REPEATS) if number == 7 else (CUT,))
    told = []
    actual.tell(told.append)
    assert told == [
        "in.txt: 2 of 9 lines reached the length limit and may be cut (first: line 3)",
        "in.txt: 1 of 9 lines repeats the same tokens (first: line 7)",
    ]
    assert actual.lines() == []


def test_the_record_is_the_union_of_the_parts_of_a_store():
    # No document begins in the first part.
    tokenizer, parts = tokenizer_of("word"), [SideCounts().to_json()]
    for texts in (["the cat"], ["a dog barks"], []):
        counts = SideCounts()
        counts.add(flattened(tokenizer.encode_batch(texts), tokenizer))
        parts.append(counts.to_json())
    assert SideStatistics.of(parts).seen == SideStatistics.of([*reversed(parts)]).seen
    assert SideStatistics.of([{**parts[0], "seen": ""}, parts[1]]).seen == ""
    seen = SideStatistics.of(parts).seen
    bits = np.unpackbits(np.frombuffer(base64.b64decode(seen), np.uint8), bitorder="little")
    assert set(np.flatnonzero(bits)) == {EOS_ID, *tokenizer.encode("the cat"), *tokenizer.encode("a dog barks")}


def test_a_run_without_a_record_says_so(tmp_path, capsys):
    assert TrainingInput.of_run(RunDirectory(tmp_path)) == TrainingInput()
    for content in ("{", "[]", "{}", '{"training": 3}', '{"training": {"source": 3}}', '{"training": {"seen": "*"}}'):
        (tmp_path / "data.json").write_text(content)
        assert TrainingInput.of_run(RunDirectory(tmp_path)) == TrainingInput()
    assert capsys.readouterr().err.count("data.json: damaged") == 2
    (tmp_path / "data.json").write_text(json.dumps({"training": {"source": {"longest": 32}}}))
    result = TrainingInput.of_run(RunDirectory(tmp_path))
    assert (result.longest, result.is_seen) == (31, None)
    assert result.unseen_ids(tokenizer_of("word")) == {UNK_ID}
