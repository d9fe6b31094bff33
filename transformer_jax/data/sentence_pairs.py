"""Interfaces of sources of text: ordered streams of sentence pairs or documents."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from inspect import signature
from itertools import islice
from typing import NamedTuple, Protocol

from transformer_jax.config import DataError
from transformer_jax.errors import nearest


class SentencePair(NamedTuple):
    """A sentence and its translation: raw text without a line end."""

    source: str
    target: str


class Corpus(Protocol):
    """A source of sentence pairs in a fixed order; it drops, cuts and normalizes nothing."""

    @property
    def source_language(self) -> str:
        """Code of the source language."""

    @property
    def target_language(self) -> str:
        """Code of the target language."""

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Yield a split, or raise DataError, with file and line, if it cannot be read."""

    def count(self, split: str) -> int:
        """Return the number of pairs, or an estimate: fast, and the same in every job of shards."""

    def fingerprint(self, split: str) -> str:
        """Return a hexadecimal digest that changes with the content of the split."""


def pairs_after(corpus: Corpus, split: str, skipped: int) -> Iterator[SentencePair]:
    """Yield the pairs of a split after the first ``skipped``, which text corpora do not decode."""
    if "skipped" in signature(corpus.pairs).parameters:
        return corpus.pairs(split, skipped=skipped)  # type: ignore[call-arg]
    return islice(corpus.pairs(split), skipped, None)


class Document(NamedTuple):
    """A text, and its size in the file: bytes of UTF-8 with the line feeds at its end."""

    text: str
    num_bytes: int


class DocumentSource(Protocol):
    """A source of documents in a fixed order; it drops, cuts and normalizes nothing."""

    def documents(self, split: str) -> Iterator[Document]:
        """Yield a split, or raise DataError if it cannot be read or does not exist."""

    def count_bytes(self, split: str) -> int:
        """Return the size of a split in bytes, or an estimate: the same in every job of shards."""

    def fingerprint(self, split: str) -> str:
        """Return a hexadecimal digest that changes with the content of the split."""


class FileSource(ABC):
    """A source that reads files."""

    @abstractmethod
    def fingerprint(self, split: str, *, with_time: bool = True) -> str:
        """Return a digest of a split and, ``with_time``, of modification times of large files."""


def content_of(source: Corpus | DocumentSource, split: str) -> str:
    """Return the fingerprint that copies of a split share: without modification times."""
    return source.fingerprint(split, with_time=False) if isinstance(source, FileSource) else source.fingerprint(split)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'train'?"`` if a choice is close to ``word``, else empty."""
    close = nearest(word, choices)
    return f"; did you mean {close!r}?" if close else ""


def require_split(split: str, splits: Sequence[str], of_what: str) -> None:
    if split not in splits:
        listed = ", ".join(splits) or "none"
        raise DataError(f"{of_what} has no split {split!r}; it has {listed}{did_you_mean(split, splits)}")


def digest_of(pairs: Iterable[SentencePair]) -> str:
    return digest(sentence for pair in pairs for sentence in pair)


def digest(parts: Iterable[str]) -> str:
    """Return SHA-256 of strings with their lengths: ``["ab", "c"]`` and ``["a", "bc"]`` differ."""
    hasher = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        hasher.update(len(encoded).to_bytes(8, "little"))
        hasher.update(encoded)
    return hasher.hexdigest()


@cache
def generated_fingerprint(corpus: Corpus, split: str, settings: tuple[object, ...]) -> str:
    """Return a digest of the settings and of the first 500 pairs of a generated split."""
    head = (text for pair in islice(corpus.pairs(split), 500) for text in pair)
    return digest([type(corpus).__name__, split, *map(str, settings), *head])
