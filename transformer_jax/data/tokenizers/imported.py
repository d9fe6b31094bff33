"""Tokenizers of imported models: a sentencepiece model with other ids, and a list of merges."""

import base64
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from transformer_jax.array_types import NUM_SPECIAL_IDS, UNK_ID
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers.interface import PiecesTokenizer
from transformer_jax.data.tokenizers.subword import SPACE_SIGN, sentencepiece_processor

END_OF_WORD, CONTINUED = "</w>", "@@"


class MappedSubwordTokenizer(PiecesTokenizer):
    """A sentencepiece model, the ``pieces`` of the vocabulary by id, and a ``prefix`` of pieces.

    The model normalizes text as in its training. ``prefix``, such as the token of a language, precedes every text. A code such
    as ``>>de<<`` at the beginning of a text is one piece, if it is listed.
    """

    kind = "mapped"

    def __init__(self, model: bytes, pieces: Sequence[str], prefix: Sequence[str] = ()) -> None:
        super().__init__(pieces)
        self._model, self._prefix = model, list(prefix)
        self._processor = sentencepiece_processor(model)
        for piece in self._prefix:
            if piece not in self._ids:
                raise DataError(f"{piece!r} is not in the vocabulary")

    @classmethod
    def from_content(cls, content: Any) -> "MappedSubwordTokenizer":
        return cls(base64.b64decode(content["model"]), content["pieces"], content["prefix"])

    def content(self) -> dict[str, Any]:
        model = base64.b64encode(self._model).decode()
        return {"model": model, "pieces": self._pieces, "prefix": self._prefix}

    @property
    def model(self) -> bytes:
        """The sentencepiece model."""
        return self._model

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids without special ids and prefix."""
        pieces = [piece for piece, i in zip(self.pieces(ids), ids, strict=True) if i >= NUM_SPECIAL_IDS]
        return self._processor.decode_pieces([piece for piece in pieces if piece not in self._prefix])

    def surfaces(self, text: str) -> list[bytes]:
        """The pieces in UTF-8; concatenated, they are the normalized text after a space."""
        return [piece.replace(SPACE_SIGN, " ").encode() for piece in self.split(text)]

    def split(self, text: str) -> list[str]:
        code, mark, rest = text.partition("<<")
        codes = [code + mark] if mark and code.startswith(">>") and code + mark in self._ids else []
        return [*self._prefix, *codes, *self._processor.encode(rest if codes else text, out_type=str)]


class BpeCodesTokenizer(PiecesTokenizer):
    """The ``merges`` of subword-nmt or fastBPE, in the order of learning, and the ``pieces`` by id.

    Spaces separate words, as in output of the Moses tokenizer; every subword of a word except the last ends in ``@@``.
    """

    kind = "bpe_codes"

    def __init__(self, merges: Sequence[tuple[str, str]], pieces: Sequence[str]) -> None:
        super().__init__(pieces)
        self._merges = list(merges)
        self._ranks = {pair: rank for rank, pair in reversed(list(enumerate(self._merges)))}
        self._subwords = lru_cache(maxsize=1 << 20)(self._segmented)

    @classmethod
    def from_content(cls, content: Any) -> "BpeCodesTokenizer":
        return cls([(left, right) for left, right in content["merges"]], content["pieces"])

    def content(self) -> dict[str, Any]:
        return {"merges": self._merges, "pieces": self._pieces}

    def decode(self, ids: Sequence[int]) -> str:
        """Words with a space between them; of special ids only UNK is kept."""
        kept = " ".join(self._pieces[int(i)] for i in ids if i == UNK_ID or i >= NUM_SPECIAL_IDS)
        return f"{kept} ".replace(f"{CONTINUED} ", "").rstrip(" ")

    def surfaces(self, text: str) -> list[bytes]:
        """The subwords in UTF-8; concatenated, they are the words with one space before each."""
        surfaces, is_new = [], True
        for piece in self.split(text):
            surfaces.append((" " * is_new + piece.removesuffix(CONTINUED)).encode())
            is_new = not piece.endswith(CONTINUED)
        return surfaces

    def split(self, text: str) -> list[str]:
        return [piece for word in text.split(" ") if word for piece in self._subwords(word)]

    def _segmented(self, word: str) -> list[str]:
        parts = [*word[:-1], word[-1] + END_OF_WORD]
        while len(parts) > 1:
            pair = min(pairwise(parts), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if pair not in self._ranks:
                break
            parts = merged(parts, pair)
        *first, last = parts
        return [part + CONTINUED for part in first] + [last.removesuffix(END_OF_WORD)]


def merged(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """``parts`` with every occurrence of ``pair`` merged, from the left: a b a b c with (a, b) is ab ab c."""
    result: list[str] = []
    index = 0
    while index < len(parts):
        size = 2 if tuple(parts[index : index + 2]) == pair else 1
        result.append("".join(parts[index : index + size]))
        index += size
    return result
