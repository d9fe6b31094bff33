"""The vocabulary follows from the characters and scripts of both sides."""

import pytest

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.corpus_statistics import BLOCK, SAMPLED, sample_of, side_text, vocabulary_of
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.tokenizer_training import too_many_pieces, train_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [f"{LETTERS[n % 26]}{LETTERS[n // 26 % 26]}{LETTERS[n // 7 % 26]}{LETTERS[n // 26]}" for n in range(600)]
ENGLISH = [f"the dog sees {number} old {WORDS[number % 600]}s and a word of {number * 7}" for number in range(900)]
HAN = [chr(0x4E00 + 3 * number) for number in range(300)]
# Every character six times, in other company.
JAPANESE = [f"{HAN[number % 300]}\u306e{HAN[(number * 7 + number // 300) % 300]}" for number in range(900)]


def size_of(texts, size):
    return train_tokenizer(TokenizerConfig("bpe", size, character_coverage=0), texts).vocabulary_size


def test_a_side_in_another_script_gets_its_own_vocabulary():
    choice, said = vocabulary_of(side_text(ENGLISH), side_text(JAPANESE), "bpe", 1000)
    tokenizer = {"tokenizer.vocabulary_size": 681, "tokenizer.joint": False, "tokenizer.character_coverage": 0}
    assert choice == tokenizer | {"model.tying": "output"}  # 260 + 1.4 * 301
    assert said.startswith("two vocabularies of 681 pieces (Latin and Han/Hiragana, 0% of the letters in scripts of ")
    choice, _ = vocabulary_of(side_text(ENGLISH), side_text(["der Hund"]), "bpe", 600)
    assert choice == tokenizer | {"tokenizer.vocabulary_size": 600, "tokenizer.joint": True}


def test_the_size_is_one_that_the_text_supports():
    few = ENGLISH[:200]
    size = vocabulary_of(side_text(few), side_text(JAPANESE), "bpe", 2000).settings["tokenizer.vocabulary_size"]
    assert size < 700 and size_of(few, size) == size_of(JAPANESE, size) == size
    # Even the smallest vocabulary of the one side is more than the other supports.
    choice, said = vocabulary_of(side_text(ENGLISH[:20]), side_text(JAPANESE), "bpe", 2000)
    assert choice["tokenizer.joint"] and "too little text for two" in said
    assert size_of([*ENGLISH[:20], *JAPANESE], choice["tokenizer.vocabulary_size"])


@pytest.mark.parametrize(
    "texts",
    [
        [f"{number} + {7 * number} =" for number in range(3000)],
        [f"{number}\u00a0+\u3000{7 * number}\u2009=" for number in range(3000)],
        [" ".join(str(number)) for number in range(3000)],
        ["\U0001f600\U0001f601", "\U0001f602"] * 100,
        [" ".join(WORDS[number]) for number in range(600)],
    ],
)
def test_text_of_numbers_symbols_or_letters_has_a_vocabulary(texts):
    size = vocabulary_of(side_text(texts), side_text(texts), "bpe", 2000).settings["tokenizer.vocabulary_size"]
    assert size_of(texts, size) == size


def test_coverage_by_script_leaves_rare_characters_of_a_large_script_to_bytes():
    rare = "\u9f98\u00df"
    config = TokenizerConfig("bpe", 700, character_coverage=0)
    in_japanese, in_english = (
        train_tokenizer(config, [*item * 3, rare]).pieces(range(700)) for item in (JAPANESE, ENGLISH)
    )
    assert "\u00df" in in_english and "\u00df" not in in_japanese and "\u306e" in in_japanese


def test_the_sample_is_spread_and_knows_every_character():
    far = [SentencePair(f"a {number}", chr(0x3400 + number % 5000)) for number in range(3 * SAMPLED)]
    sample = sample_of(iter(far), len(far))
    assert SAMPLED - BLOCK < len(sample.pairs) <= SAMPLED
    assert sample.lines[0] == 0 and sample.lines[-1] > len(far) - 4 * BLOCK
    assert [far[line] for line in sample.lines] == sample.pairs
    assert len(sample.target.characters) == 5000
    assert sample_of(iter(far[:300]), 300).lines == list(range(300))


def test_text_that_is_spelled_in_letters_or_bytes_is_told():
    pairs = [SentencePair("immeasurable considerations", "\u8a9e\u5f59\u6570")] * 3
    letters = train_tokenizer(TokenizerConfig("bpe", 280), ["i m e a s u r b l c o n d t"])
    english, japanese = too_many_pieces(TokenizerPair(letters, letters), pairs, ("en", "ja"))
    assert len(too_many_pieces(TokenizerPair(letters, letters), pairs, ("und", "und"))) == 2, "languages may be unknown"
    assert " pieces a word of en: a vocabulary of 280 spells it in letters or bytes" in english
    assert " pieces a character of ja: " in japanese
    words = train_tokenizer(TokenizerConfig("character", 300), ["ab"])
    assert too_many_pieces(TokenizerPair(words, words), pairs, ("en", "ja")) == []
