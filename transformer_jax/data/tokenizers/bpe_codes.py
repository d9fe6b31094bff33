"""Byte pair encoding by a list of merges, on text that is words already (Sennrich et al. 2016, algorithm 1)."""

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from transformer_jax.array_types import NUM_SPECIAL_IDS, UNK_ID
from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json

END_OF_WORD, CONTINUED = "</w>", "@@"


class BpeCodesTokenizer:
    """The ``merges`` of subword-nmt or fastBPE, first learned first, and the ``pieces`` by id (the first four special).

    Words stand between spaces, as Moses's tokenizer leaves them; every subword of a word but the last ends in ``@@``.
    """

    kind: ClassVar[str] = "bpe_codes"

    def __init__(self, merges: Sequence[tuple[str, str]], pieces: Sequence[str]) -> None:
        self._merges = list(merges)
        self._pieces = list(pieces)
        self._ranks = {pair: rank for rank, pair in reversed(list(enumerate(self._merges)))}
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._words: dict[str, list[str]] = {}

    def __reduce__(self) -> tuple[type["BpeCodesTokenizer"], tuple[list[tuple[str, str]], list[str]]]:
        return BpeCodesTokenizer, (self._merges, self._pieces)

    @classmethod
    def from_bytes(cls, data: bytes) -> "BpeCodesTokenizer":
        """The tokenizer that ``to_bytes`` described; raises DataError on anything else."""
        try:
            content = parse_json(data)
            return cls([(left, right) for left, right in content["merges"]], content["pieces"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"not the vocabulary of a {cls.kind} tokenizer") from None

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, the four special ones included."""
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Ids without BOS and EOS."""
        return [self._ids.get(piece, UNK_ID) for piece in self._split(text)]

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """``encode`` of many texts; always on one core."""
        del num_threads
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Words with a space between them; special ids but UNK are left out."""
        kept = " ".join(self._pieces[int(i)] for i in ids if i == UNK_ID or i >= NUM_SPECIAL_IDS)
        return f"{kept} ".replace(f"{CONTINUED} ", "").rstrip(" ")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id, for display."""
        return [self._pieces[int(i)] for i in ids]

    def surfaces(self, text: str) -> list[bytes]:
        """The subwords in UTF-8; concatenated, the words with one space before each."""
        surfaces, is_new = [], True
        for piece in self._split(text):
            surfaces.append((" " * is_new + piece.removesuffix(CONTINUED)).encode())
            is_new = not piece.endswith(CONTINUED)
        return surfaces

    def fingerprint(self) -> str:
        """SHA-256 of the kind, the merges and the vocabulary."""
        return hashlib.sha256(self.kind.encode() + b"\0" + self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """JSON, ASCII only."""
        content = {"kind": self.kind, "merges": self._merges, "pieces": self._pieces}
        return json.dumps(content, indent=0).encode("ascii")

    def _split(self, text: str) -> list[str]:
        return [piece for word in text.split() for piece in self._subwords(word)]

    def _subwords(self, word: str) -> list[str]:
        if word not in self._words:
            parts = [*word[:-1], word[-1] + END_OF_WORD]
            while len(parts) > 1:
                pair = min(pairwise(parts), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
                if pair not in self._ranks:
                    break
                parts = merged(parts, pair)
            *first, last = parts
            self._words[word] = [part + CONTINUED for part in first] + [last.removesuffix(END_OF_WORD)]
        return self._words[word]


def merged(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """``parts`` with every occurrence of ``pair`` as one part, from the left: a b a b c with (a, b) is ab ab c."""
    result: list[str] = []
    rest = list(parts)
    while rest:
        size = 2 if tuple(rest[:2]) == pair else 1
        result.append("".join(rest[:size]))
        rest = rest[size:]
    return result
