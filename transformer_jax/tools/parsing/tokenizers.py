"""Tokenizers of parsing: words with classes of unknown words, and symbols of trees."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from transformer_jax.array_types import NUM_SPECIAL_IDS, UNK_ID
from transformer_jax.data.text_files import ascii_words
from transformer_jax.data.tokenizers.listed import ListedTokenizer
from transformer_jax.data.tokenizers.tokenizer_interface import Tokenizer
from transformer_jax.tools.parsing.trees import ESCAPES, FURTHER_ESCAPES, is_position

SUFFIXES = ("tion", "ing", "ed", "ly", "er", "est", "al", "ion", "able", "ic", "ity", "ive", "ous", "ment", "s", "y")
_SUFFIX = re.compile(rf"({'|'.join(sorted(SUFFIXES, key=len, reverse=True))})$")


class SymbolTokenizer(ListedTokenizer):
    """Symbols with ASCII white space between them. An unknown symbol decodes to ``<unk>``."""

    kind = "symbol"
    unknown = "<unk>"
    may_repeat = True

    @staticmethod
    def split(text: str) -> Sequence[str]:
        return ascii_words(text)

    @staticmethod
    def join(units: Iterable[str]) -> str:
        return " ".join(units)


class WordClassTokenizer(SymbolTokenizer):
    """Words with ASCII white space between them, of which rare ones become classes.

    Classes are by capital letters, digits, hyphens and suffixes, as in Petrov et al. 2006:
    ``unk-cap-s``, ``unk-num``.
    """

    kind = "word_class"

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary_size: int, min_count: int = 2) -> "ListedTokenizer":
        """Return a tokenizer of the words with ``min_count`` occurrences and the classes of all."""
        counts = Counter(word for sentence in sentences for word in cls.split(sentence))
        classes = Counter[str]()
        for word, count in counts.items():
            classes[class_of(word)] += count
        frequent = (
            word for word in sorted(counts, key=lambda word: (-counts[word], word)) if counts[word] >= min_count
        )
        return cls([*(name for name, _ in classes.most_common()), *frequent][: vocabulary_size - NUM_SPECIAL_IDS])

    def encode(self, text: str) -> list[int]:
        ids = self._ids
        return [ids[word] if word in ids else ids.get(class_of(word), UNK_ID) for word in self.split(text)]


class SentenceTokenizer(Tokenizer):
    """A tokenizer of the words of trees, for sentences as people write them.

    Words have one space between them. Round brackets are ``-LRB-`` and ``-RRB-``, and the other
    characters of ``FURTHER_ESCAPES`` have the form of the treebank if the vocabulary has pieces of
    that form.
    """

    def __init__(self, of_words: Tokenizer) -> None:
        self.kind, self._of_words = of_words.kind, of_words
        pieces = "\n".join(of_words.pieces(range(NUM_SPECIAL_IDS, of_words.vocabulary_size)))
        further = {character: form for character, form in FURTHER_ESCAPES.items() if form.strip("-") in pieces}
        self._forms = ESCAPES | further
        # A backslash before a slash or an asterisk is of the form already.
        self._escaped = re.compile(rf"[{re.escape(''.join(set(self._forms).difference('/*')))}]|(?<!\\)[/*]")

    @property
    def vocabulary_size(self) -> int:
        return self._of_words.vocabulary_size

    def _written(self, text: str) -> str:
        return self._escaped.sub(lambda match: self._forms.get(match[0], match[0]), " ".join(ascii_words(text)))

    def encode(self, text: str) -> list[int]:
        return self._of_words.encode(self._written(text))

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        return self._of_words.encode_batch([*map(self._written, texts)], num_threads)

    def encode_with_dropout(self, text: str, dropout: float, seed: int) -> list[int]:
        return self._of_words.encode_with_dropout(self._written(text), dropout, seed)

    def is_blank(self, text: str, ids: Sequence[int]) -> bool:
        return self._of_words.is_blank(text, ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self._of_words.decode(ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._of_words.pieces(ids)

    def shown(self, ids: Sequence[int]) -> list[str]:
        return self._of_words.shown(ids)

    def surfaces(self, text: str) -> list[bytes]:
        return self._of_words.surfaces(self._written(text))

    def to_bytes(self) -> bytes:
        return self._of_words.to_bytes()


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


def count_positions(tokenizer: Tokenizer) -> int:
    """Return the number of positions in a vocabulary, at most ``POSITIONS``."""
    return sum(map(is_position, tokenizer.pieces(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size))))


def word_starts(tokenizer: Tokenizer) -> list[bool]:
    """Return by id whether it begins a word of a sentence with one space between words."""
    pieces = tokenizer.pieces(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size))
    is_subword = tokenizer.kind in ("bpe", "unigram")
    return [False] * UNK_ID + [True] + [not is_subword or piece.startswith("\u2581") for piece in pieces]
