"""From attention between pieces to words."""

import numpy as np
import pytest

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.tokenizers.subword import MappedSubwordTokenizer
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizer
from transformer_jax.tools.explorer.soft_alignment import word_membership, words_of_pieces

SENTENCES = ["a dog goes home .", "two dogs went homewards .", "the house of dogs and the home of goats"] * 4


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
@pytest.mark.parametrize(
    "text", [*SENTENCES[:3], "the (Katzen) home", "a dog-Katze  goes ", " \u2581 \x1b dog\u00a0é\u3000日本", "", " "]
)
def test_pieces_belong_to_the_words_they_spell(kind, text):
    tokenizer = train_tokenizer(TokenizerConfig(kind, 290), SENTENCES)
    surfaces = tokenizer.surfaces(text)
    assert len(surfaces) == len(tokenizer.encode(text))
    words = words_of_pieces(surfaces)
    assert words == sorted(words)
    assert len(set(words)) == max(len(text.split()), bool(surfaces))
    for number, word in enumerate(text.split()):
        spelt = b"".join(surface for surface, owner in zip(surfaces, words, strict=True) if owner == number)
        # sentencepiece's own sign for a space is escaped.
        assert spelt.decode().replace("\x1b1", "\u2581").replace("\x1b0", "\x1b").split() == [word]


def test_without_spaces_words_are_pieces():
    pieces = ["私は", "JA", "X", "が好き", "。", " 彼", " is", " he"]
    assert words_of_pieces([piece.encode() for piece in pieces], True) == [0, 1, 1, 2, 3, 4, 5, 6]
    assert words_of_pieces([piece.encode() for piece in pieces]) == [0, 0, 0, 0, 0, 1, 2, 3]
    letter = "好".encode()
    assert words_of_pieces([letter[:1], letter[1:], "き".encode()], True) == [0, 0, 1]
    assert words_of_pieces([b"a", b" dog", b"s"], True) == [0, 1, 1]


def test_the_code_of_a_language_before_every_text_is_no_word():
    learned = train_tokenizer(TokenizerConfig("bpe", 300), SENTENCES)
    pieces = [*learned.pieces(range(4)), *learned.pieces(range(4, 300)), "__en__"]
    mapped = MappedSubwordTokenizer(learned.to_bytes(), pieces, ["__en__"])
    expected = word_membership(learned, SENTENCES[0])
    np.testing.assert_array_equal(word_membership(mapped, SENTENCES[0]), np.pad(expected, ((0, 0), (1, 0))))
    assert word_membership(mapped, "").shape == (0, 1)
