"""Interfaces of sources of text: ordered streams of sentence pairs or documents."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from inspect import signature
from itertools import islice
from typing import NamedTuple, Protocol, runtime_checkable

from transformer_jax.config import DataError
from transformer_jax.errors import nearest


class SentencePair(NamedTuple):
    """A sentence and its translation: raw text without a line end."""

    source: str
    target: str


@runtime_checkable
class Corpus(Protocol):
    """A source of sentence pairs in a fixed order; it drops, cuts and normalizes nothing."""

    @property
    def source_language(self) -> str:
        """Code of the source language."""

    @property
    def target_language(self) -> str:
        """Code of the target language."""

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Streams a split; raises DataError, with file and line, if it cannot be read or has no pair."""

    def count(self, split: str) -> int:
        """Number of pairs of a split, or an estimate; fast, and the same in every job, since shards are cut by it."""

    def fingerprint(self, split: str) -> str:
        """Hexadecimal digest that changes when the content of the split changes."""


def pairs_after(corpus: Corpus, split: str, skipped: int) -> Iterator[SentencePair]:
    """The pairs of a split after the first ``skipped``, which corpora of text do not decode."""
    if "skipped" in signature(corpus.pairs).parameters:
        return corpus.pairs(split, skipped=skipped)  # type: ignore[call-arg]
    return islice(corpus.pairs(split), skipped, None)


class Document(NamedTuple):
    """A text, and its size in the file: bytes of UTF-8 with the line feeds at its end."""

    text: str
    num_bytes: int


@runtime_checkable
class DocumentSource(Protocol):
    """A source of documents in a fixed order; it drops, cuts and normalizes nothing."""

    def documents(self, split: str) -> Iterator[Document]:
        """Streams a split; raises DataError if it cannot be read or does not exist."""

    def count_bytes(self, split: str) -> int:
        """Size of a split in bytes, or an estimate; the same in every job, since shards are cut by it."""

    def fingerprint(self, split: str) -> str:
        """Hexadecimal digest that changes when the content of the split changes."""


class FileSource(ABC):
    """A source that reads files."""

    @abstractmethod
    def fingerprint(self, split: str, *, with_time: bool = True) -> str:
        """Digest of a split's content; ``with_time``: and of the modification times of large files, which copies change."""


def content_of(source: Corpus | DocumentSource, split: str) -> str:
    """Return the fingerprint of a split that copies of its files share: without modification times."""
    return source.fingerprint(split, with_time=False) if isinstance(source, FileSource) else source.fingerprint(split)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``"; did you mean 'train'?"`` if one of ``choices`` is close to ``word``, else an empty string."""
    close = nearest(word, choices)
    return f"; did you mean {close!r}?" if close else ""


def require_split(split: str, splits: Sequence[str], of_what: str) -> None:
    """Raise DataError, with all ``splits``, unless ``split`` is one of them."""
    if split not in splits:
        found = ", ".join(splits) or "none"
        raise DataError(f"{of_what} has no split {split!r}; it has {found}{did_you_mean(split, splits)}")


def digest_of(pairs: Iterable[SentencePair]) -> str:
    """SHA-256 of the sentences of some pairs."""
    return digest(sentence for pair in pairs for sentence in pair)


def digest(parts: Iterable[str]) -> str:
    """SHA-256 of a sequence of strings with their lengths: ``["ab", "c"]`` and ``["a", "bc"]`` differ."""
    hasher = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        hasher.update(len(encoded).to_bytes(8, "little"))
        hasher.update(encoded)
    return hasher.hexdigest()


@cache
def generated_fingerprint(corpus: Corpus, split: str, settings: tuple[object, ...]) -> str:
    """Digest of the settings and the first 500 pairs of a generated split, so that it changes with the generator."""
    head = (text for pair in islice(corpus.pairs(split), 500) for text in pair)
    return digest([type(corpus).__name__, split, *map(str, settings), *head])
