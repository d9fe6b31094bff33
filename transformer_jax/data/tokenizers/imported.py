"""Tokenizers that come with imported models: a sentencepiece model with ids of its own, and lists of merges."""

import base64
import json
from collections.abc import Sequence
from itertools import pairwise

import sentencepiece

from transformer_jax.array_types import NUM_SPECIAL_IDS, UNK_ID
from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.tokenizers.interface import Tokenizer

END_OF_WORD, CONTINUED = "</w>", "@@"


class _PiecesTokenizer(Tokenizer):
    """A vocabulary of pieces by id, the first four special; a piece that it lacks becomes UNK."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = list(pieces)
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}

    @property
    def vocabulary_size(self) -> int:
        return len(self._pieces)

    def split(self, text: str) -> list[str]:
        """The pieces of a text, known or not."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(piece, UNK_ID) for piece in self.split(text)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[int(i)] for i in ids]


class MappedSubwordTokenizer(_PiecesTokenizer):
    """A sentencepiece model, the ``pieces`` of the vocabulary by id (the first four special), and a ``prefix`` of pieces.

    The model normalizes text as it was trained to. ``prefix``, such as the token of a language, precedes every text. A code
    such as ``>>de<<`` at the beginning of a text is one piece, if it is listed.
    """

    kind = "mapped"

    def __init__(self, model: bytes, pieces: Sequence[str], prefix: Sequence[str] = ()) -> None:
        super().__init__(pieces)
        self._model, self._prefix = model, list(prefix)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise DataError(f"not a sentencepiece model: {error}") from None
        for piece in self._prefix:
            if piece not in self._ids:
                raise DataError(f"{piece!r} is not in the vocabulary")

    @classmethod
    def from_bytes(cls, data: bytes) -> "MappedSubwordTokenizer":
        try:
            content = parse_json(data)
            return cls(base64.b64decode(content["model"]), content["pieces"], content["prefix"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"not the vocabulary of a {cls.kind} tokenizer") from None

    @property
    def model(self) -> bytes:
        """The sentencepiece model."""
        return self._model

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special ones and the prefix are left out."""
        pieces = [piece for piece, i in zip(self.pieces(ids), ids, strict=True) if i >= NUM_SPECIAL_IDS]
        return self._processor.decode_pieces([piece for piece in pieces if piece not in self._prefix])

    def surfaces(self, text: str) -> list[bytes]:
        """The pieces in UTF-8; concatenated, the text as the model normalizes it, after a space."""
        return [piece.replace("\u2581", " ").encode() for piece in self.split(text)]

    def to_bytes(self) -> bytes:
        """JSON, ASCII only; the model in base 64."""
        model = base64.b64encode(self._model).decode()
        content = {"kind": self.kind, "model": model, "pieces": self._pieces, "prefix": self._prefix}
        return json.dumps(content, indent=0).encode("ascii")

    def split(self, text: str) -> list[str]:
        code, mark, rest = text.partition("<<")
        codes = [code + mark] if mark and code.startswith(">>") and code + mark in self._ids else []
        return [*self._prefix, *codes, *self._processor.encode(rest if codes else text, out_type=str)]


class BpeCodesTokenizer(_PiecesTokenizer):
    """The ``merges`` of subword-nmt or fastBPE, first learned first, and the ``pieces`` by id (the first four special).

    Words stand between spaces, as Moses's tokenizer leaves them; every subword of a word but the last ends in ``@@``.
    """

    kind = "bpe_codes"

    def __init__(self, merges: Sequence[tuple[str, str]], pieces: Sequence[str]) -> None:
        super().__init__(pieces)
        self._merges = list(merges)
        self._ranks = {pair: rank for rank, pair in reversed(list(enumerate(self._merges)))}
        self._words: dict[str, list[str]] = {}

    @classmethod
    def from_bytes(cls, data: bytes) -> "BpeCodesTokenizer":
        try:
            content = parse_json(data)
            return cls([(left, right) for left, right in content["merges"]], content["pieces"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"not the vocabulary of a {cls.kind} tokenizer") from None

    def decode(self, ids: Sequence[int]) -> str:
        """Words with a space between them; special ids but UNK are left out."""
        kept = " ".join(self._pieces[int(i)] for i in ids if i == UNK_ID or i >= NUM_SPECIAL_IDS)
        return f"{kept} ".replace(f"{CONTINUED} ", "").rstrip(" ")

    def surfaces(self, text: str) -> list[bytes]:
        """The subwords in UTF-8; concatenated, the words with one space before each."""
        surfaces, is_new = [], True
        for piece in self.split(text):
            surfaces.append((" " * is_new + piece.removesuffix(CONTINUED)).encode())
            is_new = not piece.endswith(CONTINUED)
        return surfaces

    def to_bytes(self) -> bytes:
        """JSON, ASCII only."""
        content = {"kind": self.kind, "merges": self._merges, "pieces": self._pieces}
        return json.dumps(content, indent=0).encode("ascii")

    def split(self, text: str) -> list[str]:
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
    index = 0
    while index < len(parts):
        size = 2 if tuple(parts[index : index + 2]) == pair else 1
        result.append("".join(parts[index : index + size]))
        index += size
    return result
