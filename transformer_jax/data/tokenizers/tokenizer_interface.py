"""Interface of tokenizers, and a base class with a list of pieces. Ids 0 to 3 are special."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from transformer_jax.array_types import UNK_ID
from transformer_jax.config import DataError
from transformer_jax.data.text_files import says_nothing, visible
from transformer_jax.files.json_text import parse_json

SPECIAL_PIECES = ("<pad>", "<s>", "</s>", "<unk>")
SPACE_SIGN = "\u2581"
"""Stands for a space in the pieces of sentencepiece."""
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
LANGUAGE_CODE = re.compile(r">>[^<>\s]+<<")
BYTE_MARK = "\N{MIDLINE HORIZONTAL ELLIPSIS}"
"""Shown for a byte of a character that the next pieces complete."""


class Tokenizer(ABC):
    """Text to ids and back; ``tokenizer_from_bytes(kind, to_bytes())`` makes an equal tokenizer."""

    kind: str
    """A value of the setting ``tokenizer.kind``."""

    language_codes: tuple[str, ...] = ()
    """The codes that a text may begin with, such as ``>>de<<``."""

    may_repeat = False
    """Whether a good text has the same tokens many times in a row, as symbols of trees do."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """Number of ids, the special ones included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return ids without BOS and EOS."""

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """Encode many texts, in ``num_threads`` threads (-1: all cores) if it can use threads."""
        del num_threads
        return [self.encode(text) for text in texts]

    def encode_with_dropout(self, text: str, dropout: float, seed: int) -> list[int]:
        """Return ids, with merges left out with probability ``dropout`` (Provilkov et al. 2020)."""
        raise NotImplementedError(f"{self.kind} has no merges")

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without PAD, BOS and EOS."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the entries of ids in the vocabulary, such as ``<0x41>`` for a byte."""

    def shown(self, ids: Sequence[int]) -> list[str]:
        """Return the text of every id. A character of several bytes is shown at its last byte."""
        texts, spelled = [], b""
        for piece in self.pieces(ids):
            byte = BYTE_PIECE.fullmatch(piece)
            number = bytes.fromhex(byte[1]) if byte else b""
            # Bytes from 0x80 to 0xBF continue a character.
            spelled = spelled + number if b"\x80" <= number < b"\xc0" else number
            if not byte:
                texts.append(piece)
            # The first byte of a character says how many it has.
            elif len(spelled) < 1 + (spelled[0] >= 0xC0) + (spelled[0] >= 0xE0) + (spelled[0] >= 0xF0):
                texts.append(BYTE_MARK)
            else:
                texts.append(visible(spelled.decode("utf-8", "replace")[:1]))
                spelled = b""
        return texts

    def is_blank(self, text: str, ids: Sequence[int]) -> bool:
        """Return whether a text has no visible character, or no token except codes."""
        return not ids or says_nothing(text)

    @abstractmethod
    def surfaces(self, text: str) -> list[bytes]:
        """Return the UTF-8 of the ids of ``encode(text)``.

        Joined it is the text, perhaps after a space.
        """

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the vocabulary as the content of a file."""

    def fingerprint(self) -> str:
        return hashlib.sha256(self.kind.encode() + b"\0" + self.to_bytes()).hexdigest()


class PiecesTokenizer(Tokenizer):
    """A vocabulary of pieces by id, the first four special. Any other piece becomes UNK."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = list(pieces)
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}

    @classmethod
    def from_bytes(cls, data: bytes) -> "PiecesTokenizer":
        """Read ``to_bytes``, or raise DataError if ``data`` is something else."""
        try:
            return cls.from_content(parse_json(data))
        except (ValueError, KeyError, TypeError):
            raise DataError(f"not the vocabulary of a {cls.kind} tokenizer") from None

    @classmethod
    @abstractmethod
    def from_content(cls, content: Any) -> "PiecesTokenizer":
        """Read ``content``, or raise ValueError, KeyError or TypeError if it is something else."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return the vocabulary as a JSON object."""

    @abstractmethod
    def split(self, text: str) -> Sequence[str]:
        """Return the pieces of a text, in the vocabulary or not."""

    @property
    def vocabulary_size(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        ids = self._ids
        return [ids.get(piece, UNK_ID) for piece in self.split(text)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[int(i)] for i in ids]

    def to_bytes(self) -> bytes:
        return json.dumps({"kind": self.kind, **self.content()}, indent=0).encode("ascii")


class TokenizerPair(NamedTuple):
    """The same object twice if the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer
