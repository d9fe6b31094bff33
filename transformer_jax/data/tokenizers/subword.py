"""Lossless subwords by sentencepiece: BPE (Sennrich et al. 2016) or a unigram model (Kudo 2018).

Also the sentencepiece models of imported runs, which have other ids.
"""

import base64
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sentencepiece

from transformer_jax.array_types import BOS_ID, EOS_ID, NUM_SPECIAL_IDS, PAD_ID, UNK_ID
from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.tokenizers.tokenizer_interface import (
    BYTE_PIECE,
    LANGUAGE_CODE,
    SPACE_SIGN,
    PiecesTokenizer,
    Tokenizer,
)

if TYPE_CHECKING:
    from transformer_jax.data.tokenizers.bpe_dropout import BpeDropout

_ESCAPE = "\x1b"
_ESCAPES = {_ESCAPE: _ESCAPE + "0", SPACE_SIGN: _ESCAPE + "1"}
_TO_ESCAPE = re.compile(f"[{_ESCAPE}{SPACE_SIGN}]")
_ESCAPED = re.compile(f"{_ESCAPE}[01]")
_UNESCAPES = {escaped: character for character, escaped in _ESCAPES.items()}
# Unigram training sums floats by thread: a fixed number of threads gives the same vocabulary on
# every machine.
_TRAINING_THREADS = 16
# Unigram training needs minutes for a line of a megabyte, so longer lines are split.
_MAX_TRAINING_CHARACTERS = 2000
# A log level of sentencepiece above all messages.
_SILENT = 4


class TooManyPieces(ConfigError):
    """The text supports only ``supported`` pieces, fewer than ``tokenizer.vocabulary_size``."""

    def __init__(self, message: str, supported: int) -> None:
        super().__init__(message)
        self.supported = supported


class SubwordTokenizer(Tokenizer):
    """A trained sentencepiece model of ``kind`` ``bpe`` or ``unigram``.

    ``decode(encode(text)) == text`` for every string without lone surrogates: nothing is
    normalized, spaces are kept, and a character outside of the vocabulary becomes its UTF-8 bytes.
    sentencepiece writes a space as U+2581, so U+2581 in the text is escaped.
    """

    def __init__(self, kind: str, model: bytes) -> None:
        self.kind = kind
        self._model = model
        self._processor = sentencepiece_processor(model)

    @property
    def vocabulary_size(self) -> int:
        return self._processor.vocab_size()

    def encode(self, text: str) -> list[int]:
        return self._processor.encode(_escape(text))

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """Encode many texts, by default on all cores."""
        if len(texts) == 1:
            # Starting threads takes longer than encoding a sentence.
            return [self.encode(texts[0])]
        escaped = [_escape(text) for text in texts] if is_escaped("".join(texts)) else list(texts)
        return self._processor.encode(escaped, num_threads=num_threads)

    def encode_with_dropout(self, text: str, dropout: float, seed: int) -> list[int]:
        return self._merges.encode(_escape(text), dropout, seed)

    @cached_property
    def _merges(self) -> "BpeDropout":
        from transformer_jax.data.tokenizers.bpe_dropout import BpeDropout

        return BpeDropout(self._processor)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, U+FFFD for bytes that are not UTF-8, as a model may generate."""
        text = self._processor.decode([int(i) for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID)])
        return _ESCAPED.sub(lambda match: _UNESCAPES[match[0]], text) if _ESCAPE in text else text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the entries of ids: U+2581 is a space, ``<0x0A>`` a byte."""
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def surfaces(self, text: str) -> list[bytes]:
        """Return the pieces in UTF-8, whose concatenation is the escaped text after a space."""
        return [
            bytes([int(piece[3:5], 16)]) if BYTE_PIECE.fullmatch(piece) else piece.replace(SPACE_SIGN, " ").encode()
            for piece in self.pieces(self.encode(text))
        ]

    def to_bytes(self) -> bytes:
        return self._model


class MappedSubwordTokenizer(PiecesTokenizer):
    """A sentencepiece model, the ``pieces`` of the vocabulary by id, and a ``prefix`` of pieces.

    The model normalizes text as in its training. ``prefix``, such as the token of a language,
    precedes every text. A code such as ``>>de<<`` that begins a text is one piece, if it is listed.
    """

    kind = "mapped"

    def __init__(self, model: bytes, pieces: Sequence[str], prefix: Sequence[str] = ()) -> None:
        super().__init__(pieces)
        self._model, self._prefix = model, list(prefix)
        self._processor = sentencepiece_processor(model)
        self.language_codes = tuple(piece for piece in pieces if LANGUAGE_CODE.fullmatch(piece))
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
        return self._model

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [piece for piece, i in zip(self.pieces(ids), ids, strict=True) if i >= NUM_SPECIAL_IDS]
        return self._processor.decode_pieces([piece for piece in pieces if piece not in self._prefix])

    def surfaces(self, text: str) -> list[bytes]:
        """Return the pieces in UTF-8, whose concatenation is the normalized text after a space."""
        return [piece.replace(SPACE_SIGN, " ").encode() for piece in self.split(text)]

    def split(self, text: str) -> list[str]:
        code, mark, rest = text.partition("<<")
        codes = [code + mark] if mark and code.startswith(">>") and code + mark in self._ids else []
        return [*self._prefix, *codes, *self._processor.encode(rest if codes else text, out_type=str)]

    def is_blank(self, text: str, ids: Sequence[int]) -> bool:
        codes = {SPACE_SIGN, *self._prefix, *self.language_codes}
        return codes.issuperset(self.pieces(ids)) or super().is_blank(text, ids)


def sentencepiece_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """Load a serialized model, or raise DataError if it is none."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise DataError(f"not a sentencepiece model: {error}") from None
    return processor


def train_subword_tokenizer(
    kind: str,
    sentences: Iterable[str],
    vocabulary_size: int,
    character_coverage: float = 0.9999,
    tags: Iterable[str] = (),
) -> SubwordTokenizer:
    """Learn exactly ``vocabulary_size`` pieces: 4 special ids, 256 bytes, characters and subwords.

    Each of ``tags``, at the beginning of a text or after a space, is one of the pieces. The same
    sentences give the same model on every machine. Raises ConfigError, with the largest or smallest
    possible ``tokenizer.vocabulary_size``, if the sentences do not support this one.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_training_text(sentences),
            model_writer=model,
            model_type=kind,
            vocab_size=vocabulary_size,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            normalization_rule_name="identity",
            byte_fallback=True,
            remove_extra_whitespaces=False,
            add_dummy_prefix=True,
            character_coverage=character_coverage,
            user_defined_symbols=[SPACE_SIGN + tag for tag in tags],
            max_sentence_length=1 << 20,
            num_threads=_TRAINING_THREADS,
            minloglevel=_SILENT,
        )
    except RuntimeError as error:
        raise _explain(str(error), vocabulary_size) from None
    return SubwordTokenizer(kind, model.getvalue())


def _training_text(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        escaped = _escape(sentence)
        for start in range(0, len(escaped), _MAX_TRAINING_CHARACTERS):
            yield escaped[start : start + _MAX_TRAINING_CHARACTERS]


def is_escaped(text: str) -> bool:
    """Return whether the text has a character that is escaped before sentencepiece reads it."""
    return bool(_TO_ESCAPE.search(text))


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)


def _explain(message: str, vocabulary_size: int) -> ConfigError | DataError:
    too_large = re.search(r"set it to a value <= (\d+)", message)
    too_small = re.search(r"required_chars\. \d+ vs (\d+)", message)
    if too_large:
        problem = f"{vocabulary_size} is more than this text supports; set it to {too_large[1]} or less"
        return TooManyPieces(f"tokenizer.vocabulary_size: {problem}", int(too_large[1]))
    if too_small:
        remedy = f"is too small: 4 special ids, 256 bytes and the characters of this text need {too_small[1]}"
        return ConfigError("tokenizer.vocabulary_size", f"{vocabulary_size} {remedy}")
    return DataError(f"sentencepiece could not learn a vocabulary of {vocabulary_size}: {message}")
