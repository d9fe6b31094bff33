"""Tokenizers of parsing: words with classes of unknown words, and the symbols of linearized trees."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from transformer_jax.array_types import NUM_SPECIAL_IDS, UNK_ID
from transformer_jax.data.tokenizers.listed import ListedTokenizer
from transformer_jax.data.tokenizers.tokenizer_interface import Tokenizer
from transformer_jax.tools.parsing.trees import is_position

SUFFIXES = ("tion", "ing", "ed", "ly", "er", "est", "al", "ion", "able", "ic", "ity", "ive", "ous", "ment", "s", "y")
_SUFFIX = re.compile(rf"({'|'.join(sorted(SUFFIXES, key=len, reverse=True))})$")


class SymbolTokenizer(ListedTokenizer):
    """Symbols with a space between them; a symbol that is not listed decodes to ``<unk>``."""

    kind = "symbol"
    unknown = "<unk>"

    @staticmethod
    def split(text: str) -> Sequence[str]:
        return text.split()

    @staticmethod
    def join(units: Iterable[str]) -> str:
        return " ".join(units)


class WordClassTokenizer(SymbolTokenizer):
    """Words with a space between them; a word with fewer than two occurrences in the training text becomes its class.

    Classes are by capital letters, digits, hyphens and suffixes, as in Petrov et al. 2006: ``unk-cap-s``, ``unk-num``.
    """

    kind = "word_class"

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary_size: int, min_count: int = 2) -> "ListedTokenizer":
        """The most frequent words of ``min_count`` occurrences, and the classes of the others."""
        counts = Counter(word for sentence in sentences for word in cls.split(sentence))
        classes = Counter[str]()
        for word, count in counts.items():
            classes[class_of(word)] += count
        frequent = sorted(
            (word for word in counts if counts[word] >= min_count), key=lambda word: (-counts[word], word)
        )
        listed = [name for name, _ in classes.most_common()]
        return cls([*listed, *frequent][: vocabulary_size - NUM_SPECIAL_IDS])

    def encode(self, text: str) -> list[int]:
        ids = self._ids
        return [ids[word] if word in ids else ids.get(class_of(word), UNK_ID) for word in self.split(text)]


def class_of(word: str) -> str:
    parts = ["unk"]
    if word[0].isupper():
        parts.append("caps" if len(word) > 1 and word.isupper() else "cap")
    if any(character.isdigit() for character in word):
        parts.append("num")
    if "-" in word:
        parts.append("dash")
    suffix = _SUFFIX.search(word) if len(word) > 3 else None
    return "-".join([*parts, *([suffix[1]] if suffix else [])])


def known_positions(tokenizer: Tokenizer) -> int:
    """The number of positions of words: fewer than ``POSITIONS`` where no sentence of the training text is as long."""
    return sum(map(is_position, tokenizer.pieces(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size))))


def word_starts(tokenizer: Tokenizer) -> list[bool]:
    """Whether each id begins a word of a sentence with one space between words."""
    pieces = tokenizer.pieces(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size))
    is_subword = tokenizer.kind in ("bpe", "unigram")
    return [False] * UNK_ID + [True] + [not is_subword or piece.startswith("\u2581") for piece in pieces]
