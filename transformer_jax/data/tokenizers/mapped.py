"""Subwords of a sentencepiece model under ids of their own, as models of other toolkits number them."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import ClassVar, NoReturn

import sentencepiece

from transformer_jax.array_types import NUM_SPECIAL_IDS, UNK_ID
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.json_text import parse_json


class MappedSubwordTokenizer:
    """A sentencepiece model, the ``pieces`` of the vocabulary by id (the first four special), and a ``prefix`` of pieces.

    A piece that the vocabulary lacks becomes UNK; the model normalizes text as it was trained to. ``prefix``, such as the token
    of a language, precedes every text. A code such as ``>>de<<`` at the beginning of a text is one piece, if it is listed.
    """

    kind: ClassVar[str] = "mapped"

    def __init__(self, model: bytes, pieces: Sequence[str], prefix: Sequence[str] = ()) -> None:
        self._model, self._pieces, self._prefix = model, list(pieces), list(prefix)
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise DataError(f"not a sentencepiece model: {error}") from None
        for piece in self._prefix:
            if piece not in self._ids:
                raise DataError(f"{piece!r} is not in the vocabulary")

    def __reduce__(self) -> tuple[type["MappedSubwordTokenizer"], tuple[bytes, list[str], list[str]]]:
        return MappedSubwordTokenizer, (self._model, self._pieces, self._prefix)

    @classmethod
    def from_bytes(cls, data: bytes) -> "MappedSubwordTokenizer":
        """The tokenizer that ``to_bytes`` described; raises DataError on anything else."""
        try:
            content = parse_json(data)
            return cls(base64.b64decode(content["model"]), content["pieces"], content["prefix"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"not the vocabulary of a {cls.kind} tokenizer") from None

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, the four special ones included."""
        return len(self._pieces)

    @property
    def model(self) -> bytes:
        """The sentencepiece model."""
        return self._model

    def encode(self, text: str) -> list[int]:
        """Ids without BOS and EOS."""
        return [self._ids.get(piece, UNK_ID) for piece in self._split(text)]

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """``encode`` of many texts; always on one core."""
        del num_threads
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special ones and the prefix are left out."""
        pieces = [piece for piece, i in zip(self.pieces(ids), ids, strict=True) if i >= NUM_SPECIAL_IDS]
        return self._processor.decode_pieces([piece for piece in pieces if piece not in self._prefix])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id, for display."""
        return [self._pieces[int(i)] for i in ids]

    def surfaces(self, text: str) -> list[bytes]:
        """The pieces in UTF-8; concatenated, the text as the model normalizes it, after a space."""
        return [piece.replace("\u2581", " ").encode() for piece in self._split(text)]

    def fingerprint(self) -> str:
        """SHA-256 of the kind, the model and the vocabulary."""
        return hashlib.sha256(self.kind.encode() + b"\0" + self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """JSON, ASCII only; the model in base 64."""
        model = base64.b64encode(self._model).decode()
        content = {"kind": self.kind, "model": model, "pieces": self._pieces, "prefix": self._prefix}
        return json.dumps(content, indent=0).encode("ascii")

    def _split(self, text: str) -> list[str]:
        code, mark, rest = text.partition("<<")
        codes = [code + mark] if mark and code.startswith(">>") and code + mark in self._ids else []
        return [*self._prefix, *codes, *self._processor.encode(rest if codes else text, out_type=str)]


def refuse_training(sentences: Iterable[str], vocabulary_size: int) -> NoReturn:
    """Raises ConfigError: such a tokenizer comes with an imported model."""
    del sentences, vocabulary_size
    raise ConfigError(
        "tokenizer.kind: mapped and bpe_codes come with an imported model; adopt them with --config.init.run=RUN"
    )
