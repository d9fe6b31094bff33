"""Interface of a tokenizer: text to token ids and back.

Ids 0 to 3 are PAD, BOS, EOS and UNK for every tokenizer. Nothing here needs TensorFlow.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

SPECIAL_PIECES = ("<pad>", "<s>", "</s>", "<unk>")


class Tokenizer(ABC):
    """Text to ids and back; ``tokenizer_from_bytes(kind, to_bytes())`` is an equal tokenizer."""

    kind: str
    """A value of the setting ``tokenizer.kind``."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """Number of ids, the four special ones included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids without BOS and EOS."""

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """``encode`` of many texts; a tokenizer that can use threads uses ``num_threads``, or all cores at -1."""
        del num_threads
        return [self.encode(text) for text in texts]

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids without PAD, BOS and EOS."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id, for display."""

    @abstractmethod
    def surfaces(self, text: str) -> list[bytes]:
        """Part of ``text`` for each id of ``encode(text)``, in UTF-8; concatenated, the text, maybe after a space."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Everything needed, with its ``kind``, to make the tokenizer again."""

    def fingerprint(self) -> str:
        """SHA-256 of the kind and the vocabulary."""
        return hashlib.sha256(self.kind.encode() + b"\0" + self.to_bytes()).hexdigest()


class TokenizerPair(NamedTuple):
    """The same object twice when the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer
