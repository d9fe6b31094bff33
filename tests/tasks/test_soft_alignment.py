"""From attention between pieces to words."""

import pytest

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.tokenizers import train_tokenizers
from transformer_jax.tasks.soft_alignment import words_of_pieces

SENTENCES = ["a dog goes home .", "two dogs went homewards .", "the house of dogs and the home of goats"] * 4


class Texts:
    source_language, target_language = "en", "en"

    def pairs(self, split):
        return iter([SentencePair(text, text) for text in SENTENCES])

    def count(self, split):
        return len(SENTENCES)

    def fingerprint(self, split):
        return "texts"


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
def test_pieces_belong_to_the_words_they_spell(kind):
    tokenizer = train_tokenizers(TokenizerConfig(kind, 290), Texts(), "train", 0).source
    for text in SENTENCES[:3]:
        ids = tokenizer.encode(text)
        words = words_of_pieces(tokenizer, ids)
        assert words == sorted(words)
        for number, word in enumerate(text.split()):
            spelt = tokenizer.decode([token for token, owner in zip(ids, words, strict=True) if owner == number])
            assert spelt.replace(" ", "") == word
