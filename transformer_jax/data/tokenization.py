"""Tokenization of a split: pairs or documents, in order, as one part or in shards."""

import gc
import hashlib
import json
import re
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from transformer_jax.config import ConfigError, DataConfig
from transformer_jax.config.data import SourceConfig
from transformer_jax.data.mixed_corpora import parts_of
from transformer_jax.data.pair_encoding import (
    EncodedChunk,
    Sentences,
    chunks_of,
    encoded_chunks,
    filter_settings,
    flattened,
    id_type,
    training_filters,
)
from transformer_jax.data.sentence_pairs import Corpus, Document, DocumentSource, content_of, pairs_after
from transformer_jax.data.store_statistics import SideCounts
from transformer_jax.data.token_store import DOCUMENTS, DocumentStore, SplitStore, StoreParts, TokenStore, new_array
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.runtime.startup import available_cores

# Part of every key: raise it when the meaning of files, filters or the order of pairs changes.
STORE_VERSION = 2
DOCUMENT_FORMAT_VERSION = 1
HELD_OUT = "held out for validation, or equal to such a pair"
SECONDS_UNTIL_SHOWN = 2.0
SECONDS_BETWEEN_PROGRESS = 15.0

StoreType = TypeVar("StoreType", bound=SplitStore)


@dataclass(frozen=True)
class Shard:
    """Shard ``index`` (from 0) of ``count`` shards of a split, in order, for a process each."""

    index: int
    count: int

    @property
    def name(self) -> str:
        """The folder of the shard in a store."""
        return f"{self.index}-of-{self.count}"

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse ``INDEX/COUNT``, or raise ConfigError unless 0 <= INDEX < COUNT."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
            raise ConfigError("--shard", f"{text!r} is not INDEX/COUNT with 0 <= INDEX < COUNT, such as 3/64")
        return cls(int(index), int(count))

    def bounds(self, total: int) -> tuple[int, int]:
        """Return the units ``begin:end`` of this shard of ``total``, without end for the last."""
        begin, end = (-(-index * total // self.count) for index in (self.index, self.index + 1))
        return begin, end if self.index + 1 < self.count else sys.maxsize


WHOLE_SPLIT = Shard(0, 1)


class BuildProgress:
    """Progress lines on standard error, the first after two seconds; ``total`` 0: not estimated."""

    def __init__(self, split: str, total: int, unit: str = "pairs", doing: str = "tokenizing") -> None:
        self._split, self._total, self._unit, self._doing = split, total, unit, doing
        self._done = 0
        self._started = time.monotonic()
        self._next_line = self._started + SECONDS_UNTIL_SHOWN

    def advance(self, number: int) -> None:
        self._done += number
        now = time.monotonic()
        if now < self._next_line:
            return
        self._next_line = now + SECONDS_BETWEEN_PROGRESS
        rate = self._done / (now - self._started)
        # The total may be an estimate.
        of_total = f" of {max(self._total, self._done):,}" if self._total else ""
        line = f"{self._doing} {self._split}: {self._done:,}{of_total} {self._unit}, {rate:,.0f} a second"
        sys.stderr.write(f"{line}\n")


def _threads(shard: Shard) -> int:
    """Return the number of threads that encode a shard, one if other shards use the other cores."""
    return available_cores() if shard == WHOLE_SPLIT else 1


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage more rarely: the lists of a chunk have no cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class SideWriter:
    """Appends sentences to ``{side}.ids`` (flat) and ``{side}.offsets`` (int64)."""

    def __init__(self, part: Path, side: str, tokenizer: Tokenizer) -> None:
        self.types = {f"{side}.ids": id_type(tokenizer.vocabulary_size).name, f"{side}.offsets": "int64"}
        self._ids, self._offsets = (new_array(part / name) for name in self.types)
        self.counts = SideCounts()
        np.zeros(1, np.int64).tofile(self._offsets)

    def __enter__(self) -> "SideWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._ids.close()
        self._offsets.close()

    def append(self, sentences: Sentences) -> None:
        sentences.ids.tofile(self._ids)
        (self.counts.tokens + np.cumsum(sentences.lengths, dtype=np.int64)).tofile(self._offsets)
        self.counts.add(sentences)


class Tokenization(ABC, Generic[StoreType]):
    """Tokenization of a split into the folder ``kind`` of a cache, as parts of a ``store_type``."""

    kind: ClassVar[str]
    store_type: Callable[[StoreParts], StoreType]

    @property
    @abstractmethod
    def name(self) -> str:
        """The folder of the store in ``kind``."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, object]:
        """Everything but the text that determines the content."""

    @abstractmethod
    def text(self) -> str:
        """Return a digest of the text that its copies share."""

    @abstractmethod
    def write(self, part: Path, shard: Shard = WHOLE_SPLIT) -> dict[str, Any]:
        """Write the arrays of a shard into an empty folder, and return counts and ``types``."""


@dataclass(frozen=True)
class PairTokenization(Tokenization[TokenStore]):
    """Tokenization of pairs, filtered as for training unless ``filtering`` is None."""

    corpus: Corpus
    split: str
    tokenizers: TokenizerPair
    filtering: DataConfig | None

    kind = "token_stores"
    store_type = TokenStore

    @property
    def name(self) -> str:
        return _name(self.split, self._content | {"corpus": self.corpus.fingerprint(self.split)})

    @property
    def settings(self) -> dict[str, object]:
        config = self.filtering
        seed = getattr(self.corpus, "seed", None) if config and config.held_out else None
        return self._content | (config.text_settings() if config else {}) | {"data.seed": seed}

    @property
    def _content(self) -> dict[str, object]:
        return {
            "format": STORE_VERSION,
            "split": self.split,
            "languages": [self.corpus.source_language, self.corpus.target_language],
            "tokenizers": [tokenizer.fingerprint() for tokenizer in self.tokenizers],
            "filters": filter_settings(self.filtering) if self.filtering else None,
        }

    def text(self) -> str:
        return content_of(self.corpus, self.split)

    @_rare_collections()
    def write(self, part: Path, shard: Shard = WHOLE_SPLIT) -> dict[str, Any]:
        dropped = Counter(dict.fromkeys(training_filters(self.filtering) if self.filtering else (), 0))
        read, corpora = 0, Counter[str]()
        with (
            SideWriter(part, "source", self.tokenizers.source) as source,
            SideWriter(part, "target", self.tokenizers.target) as target,
        ):
            for name, chunk in self._chunks(shard):
                read += chunk.read
                dropped.update(chunk.dropped)
                corpora[name] += len(chunk.source.lengths)
                source.append(chunk.source)
                target.append(chunk.target)
        counts = {"split": self.split, "read": read, "dropped": dict(dropped), "corpora": _named(corpora)}
        sides = {"source": source.counts.to_json(), "target": target.counts.to_json()}
        return {"types": source.types | target.types, **counts, **sides}

    def _chunks(self, shard: Shard) -> Iterator[tuple[str, EncodedChunk]]:
        """Yield the chunks of a shard with the name of their corpus.

        The first chunk of a corpus is empty.
        """
        config, source, target = self.filtering, *(flattened([], tokenizer) for tokenizer in self.tokenizers)
        times = config.segmentations if config and config.bpe_dropout else 1
        parts = parts_of(self.corpus, self.split)
        sizes = {name: part.count(self.split) for name, part in parts.items()}
        total = times * sum(sizes.values())
        progress = BuildProgress(self.split, total // shard.count)
        (first, end), begun = shard.bounds(total), 0
        for name, part in parts.items():
            yield name, EncodedChunk(0, Counter(), source, target)
            for number in range(times):
                begin = max(begun, first)
                pairs = islice(pairs_after(part, self.split, begin - begun), max(end - begin, 0))
                for chunk in encoded_chunks(pairs, self.tokenizers, config, number, _threads(shard)):
                    yield name, chunk
                    progress.advance(chunk.read)
                begun += sizes[name]
            if config and config.held_out and shard.index == shard.count - 1:
                missing = times * (sizes[name] - sum(1 for _ in part.pairs(self.split)))
                yield name, EncodedChunk(missing, Counter({HELD_OUT: missing}), source, target)


@dataclass(frozen=True)
class DocumentTokenization(Tokenization[DocumentStore]):
    """Tokenization of documents; memory holds some million characters and the longest document."""

    source: DocumentSource
    split: str
    tokenizer: Tokenizer
    config: SourceConfig

    kind = "document_stores"
    store_type = DocumentStore

    @property
    def name(self) -> str:
        fingerprints = self.source.fingerprint(self.split), self.tokenizer.fingerprint()
        return _name(self.split, [DOCUMENT_FORMAT_VERSION, self.split, *fingerprints])

    @property
    def settings(self) -> dict[str, object]:
        content = {"format": DOCUMENT_FORMAT_VERSION, "split": self.split, "tokenizer": self.tokenizer.fingerprint()}
        return content | self.config.text_settings()

    def text(self) -> str:
        return content_of(self.source, self.split)

    @_rare_collections()
    def write(self, part: Path, shard: Shard = WHOLE_SPLIT) -> dict[str, Any]:
        num_bytes, corpora, sizes_name = 0, Counter[str](), f"{DOCUMENTS}.bytes"
        progress = BuildProgress(self.split, self.source.count_bytes(self.split) // shard.count, unit="bytes")
        with SideWriter(part, DOCUMENTS, self.tokenizer) as writer, new_array(part / sizes_name) as byte_offsets:
            np.zeros(1, np.int64).tofile(byte_offsets)
            for name, documents in self._documents(shard):
                corpora[name] += 0
                for chunk in chunks_of(documents, lambda document: len(document.text)):
                    sizes = [document.num_bytes for document in chunk]
                    contents = [document.text for document in chunk]
                    ids = self.tokenizer.encode_batch(contents, num_threads=_threads(shard))
                    writer.append(flattened(ids, self.tokenizer))
                    (num_bytes + np.cumsum(sizes, dtype=np.int64)).tofile(byte_offsets)
                    num_bytes += sum(sizes)
                    corpora[name] += len(chunk)
                    progress.advance(sum(sizes))
        types = writer.types | {sizes_name: "int64"}
        return {"types": types, "bytes": num_bytes, "corpora": _named(corpora), DOCUMENTS: writer.counts.to_json()}

    def _documents(self, shard: Shard) -> Iterator[tuple[str, Iterator[Document]]]:
        """Yield the documents of corpora that begin in a shard."""

        def of_shard(part: DocumentSource, begun: int) -> Iterator[Document]:
            for document in part.documents(self.split):
                if begun >= end:
                    return
                if begun >= first:
                    yield document
                begun += document.num_bytes

        (first, end), begun = shard.bounds(self.source.count_bytes(self.split)), 0
        for name, part in parts_of(self.source, self.split).items():
            yield name, of_shard(part, begun)
            begun += part.count_bytes(self.split)


def _name(split: str, identity: object) -> str:
    """Return the folder of a store: the split, and a digest of all that determines the content."""
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    return re.sub(r"[^\w.-]+", "_", split)[:40] + f"-{key}"


def _named(corpora: Counter[str]) -> dict[str, int]:
    """Return the counts of the corpora of a mixture. A single corpus has no name."""
    return {name: count for name, count in corpora.items() if name}
