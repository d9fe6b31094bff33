"""Interfaces of the sources of training text: an ordered stream of sentence pairs, or of documents."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, runtime_checkable

from transformer_jax.config import DataError
from transformer_jax.config.errors import nearest


class SentencePair(NamedTuple):
    """A sentence and its translation: raw text without a line end."""

    source: str
    target: str


@runtime_checkable
class Corpus(Protocol):
    """One source of sentence pairs. The order is fixed, and nothing is dropped, cut or normalized here."""

    @property
    def source_language(self) -> str:
        """Language that is translated from."""

    @property
    def target_language(self) -> str:
        """Language that is translated into."""

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Streams a split; raises DataError, with file and line, on unreadable data and on a split without any pair."""

    def count(self, split: str) -> int:
        """Approximate number of pairs of a split, found fast, for showing progress."""

    def fingerprint(self, split: str) -> str:
        """Hexadecimal digest that changes when the content of the split changes."""


class Document(NamedTuple):
    """A text, and its size in the file in bytes of UTF-8, with the line feeds that end it."""

    text: str
    num_bytes: int


@runtime_checkable
class DocumentSource(Protocol):
    """One source of documents. The order is fixed; nothing is dropped, cut or normalized here."""

    def documents(self, split: str) -> Iterator[Document]:
        """Streams a split; raises DataError on unreadable data and on a split that is not there."""

    def count_bytes(self, split: str) -> int:
        """Approximate size of a split in bytes, for showing progress."""

    def fingerprint(self, split: str) -> str:
        """Hexadecimal digest that changes when the content of the split changes."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``"; did you mean 'train'?"`` when one of ``choices`` is close to ``word``, else an empty string."""
    close = nearest(word, choices)
    return f"; did you mean {close!r}?" if close else ""


def require_split(split: str, splits: Sequence[str], of_what: str) -> None:
    """Raises DataError listing ``splits`` unless ``split`` is one of them."""
    if split not in splits:
        found = ", ".join(splits) or "none at all"
        raise DataError(f"{of_what} has no split {split!r}; it has {found}{did_you_mean(split, splits)}")


def digest(parts: Iterable[str]) -> str:
    """SHA-256 of a sequence of strings, each delimited, so that ``["ab", "c"]`` and ``["a", "bc"]`` differ."""
    hasher = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        hasher.update(len(encoded).to_bytes(8, "little"))
        hasher.update(encoded)
    return hasher.hexdigest()


def generated_fingerprint(corpus: Corpus, split: str, settings: Iterable[object], sample: int = 500) -> str:
    """Digest of a generated split: its settings and its first pairs, so that it changes with the generator."""
    head = (text for pair in islice(corpus.pairs(split), sample) for text in pair)
    return digest([type(corpus).__name__, split, *map(str, settings), *head])
