"""The 256 bytes as a vocabulary: nothing to learn, nothing unknown."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import ClassVar

from transformer_jax.array_types import NUM_SPECIAL_IDS
from transformer_jax.config import DataError

NUM_BYTES = 256


class ByteTokenizer:
    """UTF-8 bytes; byte ``b`` has id ``4 + b``. ``decode(encode(text)) == text``. Picklable."""

    kind: ClassVar[str] = "byte"

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary_size: int) -> "ByteTokenizer":
        """There is nothing to learn, and the vocabulary has its own size."""
        del sentences, vocabulary_size
        return cls()

    @classmethod
    def from_bytes(cls, data: bytes) -> "ByteTokenizer":
        """The tokenizer that ``to_bytes`` described; raises DataError on anything else."""
        if data != cls().to_bytes():
            raise DataError("not the vocabulary of a byte tokenizer")
        return cls()

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, the four special ones included."""
        return NUM_SPECIAL_IDS + NUM_BYTES

    def encode(self, text: str) -> list[int]:
        """Ids without BOS and EOS."""
        return [NUM_SPECIAL_IDS + byte for byte in text.encode("utf-8", "surrogatepass")]

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """``encode`` of many texts; always on one core."""
        del num_threads
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special ones are left out. What is not UTF-8 becomes U+FFFD."""
        kept = bytes(int(i) - NUM_SPECIAL_IDS for i in ids if i >= NUM_SPECIAL_IDS)
        return kept.decode("utf-8", "replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id, for display: ``<0x41>``."""
        special = ["<pad>", "<s>", "</s>", "<unk>"]
        return [special[i] if i < NUM_SPECIAL_IDS else f"<0x{int(i) - NUM_SPECIAL_IDS:02X}>" for i in ids]

    def surfaces(self, text: str) -> list[bytes]:
        """The bytes, one by one."""
        return [bytes([byte]) for byte in text.encode("utf-8", "surrogatepass")]

    def fingerprint(self) -> str:
        """SHA-256 of the kind and the vocabulary."""
        return hashlib.sha256(self.kind.encode() + b"\0" + self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """A JSON object that says what this is."""
        return b'{"kind": "byte"}'
