"""Tokenizers into words with their spaces, lower-case words, characters, or bytes."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import regex

from transformer_jax.array_types import BOS_ID, EOS_ID, NUM_SPECIAL_IDS, PAD_ID, UNK_ID
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers.tokenizer_interface import SPECIAL_PIECES, PiecesTokenizer, Tokenizer
from transformer_jax.registry.plugins import register

WORD = r"[\w\p{N}]+"
"""Letters, combining marks, joiners, digits and underscores, in any script, for ``regex``."""


class ListedTokenizer(PiecesTokenizer):
    """A list of units; a unit that is not listed becomes UNK, which decodes to ``unknown``.

    Without unknown units ``decode(encode(text)) == text``. Unit ``k`` of ``units`` has id ``4 +
    k``.
    """

    unknown: ClassVar[str]

    def __init__(self, units: Sequence[str]) -> None:
        super().__init__((*SPECIAL_PIECES, *units))
        # Text never becomes a special id.
        self._ids = {unit: NUM_SPECIAL_IDS + index for index, unit in enumerate(units)}

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary_size: int, min_count: int = 1) -> "ListedTokenizer":
        """Return a tokenizer of the most frequent units: at most ``vocabulary_size`` ids.

        A unit needs ``min_count`` occurrences. Ties are in code point order.
        """
        empty = cls(())
        counts = Counter(unit for sentence in sentences for unit in empty.split(sentence))
        frequent = (unit for unit, count in counts.items() if count >= min_count)
        by_frequency = sorted(frequent, key=lambda unit: (-counts[unit], unit))
        return cls(by_frequency[: vocabulary_size - NUM_SPECIAL_IDS])

    @classmethod
    def from_content(cls, content: Any) -> "ListedTokenizer":
        return cls(content["units"])

    def content(self) -> dict[str, Any]:
        return {"units": self._pieces[NUM_SPECIAL_IDS:]}

    @staticmethod
    def join(units: Iterable[str]) -> str:
        return "".join(units)

    def decode(self, ids: Sequence[int]) -> str:
        kept = (int(i) for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID))
        return self.join(self.unknown if i == UNK_ID else self._pieces[i] for i in kept)

    def surfaces(self, text: str) -> list[bytes]:
        """Return the units, known or not, in UTF-8."""
        return [unit.encode("utf-8", "surrogatepass") for unit in self.split(text)]


class PatternTokenizer(ListedTokenizer):
    """Units that match a pattern; a word matches ``WORD``."""

    pattern: ClassVar[str]
    pattern_of_older: ClassVar[str]

    def __init__(self, units: Sequence[str], splits_at_marks: bool = False) -> None:
        super().__init__(units)
        self._splits_at_marks = splits_at_marks
        pattern = re.compile(self.pattern_of_older) if splits_at_marks else regex.compile(self.pattern)
        self._find: Any = pattern.findall

    @classmethod
    def from_content(cls, content: Any) -> "PatternTokenizer":
        return cls(content["units"], not content.get("marks"))

    def content(self) -> dict[str, Any]:
        return super().content() | ({} if self._splits_at_marks else {"marks": True})


@register("tokenizer", "word")
class WordTokenizer(PatternTokenizer):
    """Words and punctuation marks, with the space before them::

        "Ein Hund, der  bellt"  ->  [" Ein", " Hund", ",", " der", " ", " bellt"]

    Every character outside a word is a unit, and so is white space except for the one space before
    a word or mark. The text is split as if a space preceded it, so that its first word is the same
    unit as elsewhere. An unknown word decodes to ``<unk>``.
    """

    kind = "word"
    unknown = " <unk>"
    pattern = rf" ?(?:{WORD}|[^\w\p{{N}}\s])|\s"
    pattern_of_older = r" ?(?:\w+|[^\w\s])|\s"

    def split(self, text: str) -> Sequence[str]:
        """Return the units of a text, whose concatenation is the text after a space."""
        return self._find(" " + text) if text else []

    @staticmethod
    def join(units: Iterable[str]) -> str:
        """Return the text of some units, without the space before the first."""
        return "".join(units).removeprefix(" ")


@register("tokenizer", "lower_word")
class LowerWordTokenizer(PatternTokenizer):
    """Lower-case words without punctuation: ``"Ein Hund, der bellt"`` is ``ein hund der bellt``.

    For word vectors. Decoding puts one space between words.
    """

    kind = "lower_word"
    unknown = "<unk>"
    pattern = WORD
    pattern_of_older = r"\w+"

    def split(self, text: str) -> Sequence[str]:
        return self._find(text.lower())

    @staticmethod
    def join(units: Iterable[str]) -> str:
        return " ".join(units)


@register("tokenizer", "character")
class CharacterTokenizer(ListedTokenizer):
    """Unicode code points. A character that is not listed decodes to U+FFFD."""

    kind = "character"
    unknown = "\ufffd"

    def split(self, text: str) -> Sequence[str]:
        return text


class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8: byte ``b`` has id ``4 + b``, and ``decode(encode(text)) == text``."""

    kind = "byte"

    @classmethod
    def from_bytes(cls, data: bytes) -> "ByteTokenizer":
        if data != cls().to_bytes():
            raise DataError("not the vocabulary of a byte tokenizer")
        return cls()

    @property
    def vocabulary_size(self) -> int:
        return NUM_SPECIAL_IDS + 256

    def encode(self, text: str) -> list[int]:
        return [NUM_SPECIAL_IDS + byte for byte in text.encode("utf-8", "surrogatepass")]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, U+FFFD for bytes that are not UTF-8."""
        kept = bytes(int(i) - NUM_SPECIAL_IDS for i in ids if i >= NUM_SPECIAL_IDS)
        return kept.decode("utf-8", "replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [SPECIAL_PIECES[i] if i < NUM_SPECIAL_IDS else f"<0x{int(i) - NUM_SPECIAL_IDS:02X}>" for i in ids]

    def surfaces(self, text: str) -> list[bytes]:
        return [bytes([byte]) for byte in text.encode("utf-8", "surrogatepass")]

    def to_bytes(self) -> bytes:
        return b'{"kind": "byte"}'
