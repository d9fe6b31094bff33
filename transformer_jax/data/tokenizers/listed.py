"""Tokenizers whose vocabulary is a plain list: words with their spaces, lower-case words, characters, or the 256 bytes."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

from transformer_jax.array_types import BOS_ID, EOS_ID, NUM_SPECIAL_IDS, PAD_ID, UNK_ID
from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.tokenizers.interface import SPECIAL_PIECES, Tokenizer


class ListedTokenizer(Tokenizer):
    """Splits text into units and looks each up; a unit that is not listed becomes ``UNK_ID``, which decodes to ``unknown``.

    Without unknown units ``decode(encode(text)) == text``. Unit ``k`` of ``units`` has id ``4 + k``.
    """

    unknown: ClassVar[str]

    def __init__(self, units: Sequence[str]) -> None:
        self._units = tuple(units)
        self._ids = {unit: NUM_SPECIAL_IDS + index for index, unit in enumerate(self._units)}

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary_size: int, min_count: int = 1) -> "ListedTokenizer":
        """Lists the most frequent units that occur ``min_count`` times or more, at most ``vocabulary_size`` with special ids.

        Ties are in code point order.
        """
        counts = Counter(unit for sentence in sentences for unit in cls.split(sentence))
        frequent = (unit for unit, count in counts.items() if count >= min_count)
        by_frequency = sorted(frequent, key=lambda unit: (-counts[unit], unit))
        return cls(by_frequency[: vocabulary_size - NUM_SPECIAL_IDS])

    @classmethod
    def from_bytes(cls, data: bytes) -> "ListedTokenizer":
        try:
            return cls(parse_json(data)["units"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"not the vocabulary of a {cls.kind} tokenizer") from None

    @staticmethod
    def split(text: str) -> Sequence[str]:
        """The units of a text."""
        raise NotImplementedError

    @staticmethod
    def join(units: Iterable[str]) -> str:
        """The text of some units."""
        return "".join(units)

    @property
    def vocabulary_size(self) -> int:
        return NUM_SPECIAL_IDS + len(self._units)

    def encode(self, text: str) -> list[int]:
        ids = self._ids
        return [ids.get(unit, UNK_ID) for unit in self.split(text)]

    def decode(self, ids: Sequence[int]) -> str:
        kept = (int(i) for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID))
        return self.join(self.unknown if i == UNK_ID else self._units[i - NUM_SPECIAL_IDS] for i in kept)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [SPECIAL_PIECES[i] if i < NUM_SPECIAL_IDS else self._units[int(i) - NUM_SPECIAL_IDS] for i in ids]

    def surfaces(self, text: str) -> list[bytes]:
        """The units, known or not, in UTF-8."""
        return [unit.encode("utf-8", "surrogatepass") for unit in self.split(text)]

    def to_bytes(self) -> bytes:
        """JSON, ASCII only."""
        return json.dumps({"kind": self.kind, "units": self._units}, indent=0).encode("ascii")


class WordTokenizer(ListedTokenizer):
    """Words and punctuation marks, each with the one space before it::

        "Ein Hund, der  bellt"  ->  [" Ein", " Hund", ",", " der", " ", " bellt"]

    A word is a run of letters, digits and underscores, in any script; every other character is its own unit, a white
    space that is not the one space before a word or mark included. The text is split as if a space stood before it, so that
    its first word is the same unit as elsewhere. An unknown word decodes to ``<unk>``: only known words survive.
    """

    kind = "word"
    unknown = " <unk>"
    _UNIT = re.compile(r" ?(?:\w+|[^\w\s])|\s")

    @staticmethod
    def split(text: str) -> Sequence[str]:
        """The units of a text; they add up to the text with a space before it."""
        return WordTokenizer._UNIT.findall(" " + text) if text else []

    @staticmethod
    def join(units: Iterable[str]) -> str:
        """The text of some units, without the space before the first."""
        return "".join(units).removeprefix(" ")


class LowerWordTokenizer(ListedTokenizer):
    """Words alone, in lower case, for training word vectors: ``"Ein Hund, der bellt"`` is ``ein hund der bellt``.

    A word is a run of letters, digits and underscores, in any script; marks and white space are left out, so that decoding
    gives the words with a space between them.
    """

    kind = "lower_word"
    unknown = "<unk>"
    _UNIT = re.compile(r"\w+")

    @staticmethod
    def split(text: str) -> Sequence[str]:
        return LowerWordTokenizer._UNIT.findall(text.lower())

    @staticmethod
    def join(units: Iterable[str]) -> str:
        return " ".join(units)


class CharacterTokenizer(ListedTokenizer):
    """Unicode code points. A character that is not listed decodes to U+FFFD."""

    kind = "character"
    unknown = "\ufffd"

    @staticmethod
    def split(text: str) -> Sequence[str]:
        return text


class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8; byte ``b`` has id ``4 + b``. Nothing is learned or unknown: ``decode(encode(text)) == text``."""

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
        """Text of ids; special ones are left out. Bytes that are not UTF-8 become U+FFFD."""
        kept = bytes(int(i) - NUM_SPECIAL_IDS for i in ids if i >= NUM_SPECIAL_IDS)
        return kept.decode("utf-8", "replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id, for display: ``<0x41>``."""
        return [SPECIAL_PIECES[i] if i < NUM_SPECIAL_IDS else f"<0x{int(i) - NUM_SPECIAL_IDS:02X}>" for i in ids]

    def surfaces(self, text: str) -> list[bytes]:
        return [bytes([byte]) for byte in text.encode("utf-8", "surrogatepass")]

    def to_bytes(self) -> bytes:
        return b'{"kind": "byte"}'
