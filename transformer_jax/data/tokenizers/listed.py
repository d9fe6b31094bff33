"""Tokenizers whose vocabulary is a plain list of strings: words with their spaces, or characters."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

from transformer_jax.array_types import BOS_ID, EOS_ID, NUM_SPECIAL_IDS, PAD_ID, UNK_ID
from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json

_SPECIAL_PIECES = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>", UNK_ID: "<unk>"}


class ListedTokenizer:
    """Splits text into units and looks each up; a unit that is not listed becomes ``UNK_ID``, which decodes to ``unknown``.

    Without unknown units ``decode(encode(text)) == text``. Unit ``k`` of ``units`` has id ``4 + k``. Picklable.
    """

    kind: ClassVar[str]
    unknown: ClassVar[str]

    def __init__(self, units: Sequence[str]) -> None:
        self._units = tuple(units)
        self._ids = {unit: NUM_SPECIAL_IDS + index for index, unit in enumerate(self._units)}

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary_size: int, min_count: int = 1) -> "ListedTokenizer":
        """Lists the most frequent units, ties in code point order; fewer than ``vocabulary_size`` if there are fewer.

        None that occurs less than ``min_count`` times is listed.
        """
        counts = Counter(unit for sentence in sentences for unit in cls.split(sentence))
        enough = (unit for unit, count in counts.items() if count >= min_count)
        by_frequency = sorted(enough, key=lambda unit: (-counts[unit], unit))
        return cls(by_frequency[: vocabulary_size - NUM_SPECIAL_IDS])

    @classmethod
    def from_bytes(cls, data: bytes) -> "ListedTokenizer":
        """The tokenizer that ``to_bytes`` described; raises DataError on anything else."""
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
        raise NotImplementedError

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, the four special ones included."""
        return NUM_SPECIAL_IDS + len(self._units)

    def encode(self, text: str) -> list[int]:
        """Ids without BOS and EOS."""
        ids = self._ids
        return [ids.get(unit, UNK_ID) for unit in self.split(text)]

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """``encode`` of many texts; always on one core."""
        del num_threads
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; PAD, BOS and EOS are left out."""
        kept = (int(i) for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID))
        return self.join(self.unknown if i == UNK_ID else self._units[i - NUM_SPECIAL_IDS] for i in kept)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id, for display."""
        return [_SPECIAL_PIECES.get(int(i)) or self._units[int(i) - NUM_SPECIAL_IDS] for i in ids]

    def surfaces(self, text: str) -> list[bytes]:
        """The units, known or not, in UTF-8."""
        return [unit.encode("utf-8", "surrogatepass") for unit in self.split(text)]

    def fingerprint(self) -> str:
        """SHA-256 of the kind and the vocabulary."""
        return hashlib.sha256(self.kind.encode() + b"\0" + self.to_bytes()).hexdigest()

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
        """The text of some units: added up, less the space before the first."""
        return "".join(units).removeprefix(" ")


class LowerWordTokenizer(ListedTokenizer):
    """Words alone, in lower case, as vectors of words are trained on: ``"Ein Hund, der bellt"`` is ``ein hund der bellt``.

    A word is a run of letters, digits and underscores, in any script; marks and white space are left out, so that decoding
    gives the words with a space between them.
    """

    kind = "lower_word"
    unknown = "<unk>"
    _UNIT = re.compile(r"\w+")

    @staticmethod
    def split(text: str) -> Sequence[str]:
        """The words of a text."""
        return LowerWordTokenizer._UNIT.findall(text.lower())

    @staticmethod
    def join(units: Iterable[str]) -> str:
        """Words with spaces between them."""
        return " ".join(units)


class CharacterTokenizer(ListedTokenizer):
    """Unicode code points. A character that is not listed decodes to U+FFFD."""

    kind = "character"
    unknown = "\ufffd"

    @staticmethod
    def split(text: str) -> Sequence[str]:
        """The characters of a text."""
        return text

    @staticmethod
    def join(units: Iterable[str]) -> str:
        """The text of some characters."""
        return "".join(units)
