"""Corpus splits, tokenized once and stored as memory-mapped arrays: sentence pairs, or documents of plain text."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import UNK_ID
from transformer_jax.config import DataConfig, DataError
from transformer_jax.config.data import SourceConfig
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.cached_stores import (
    WHOLE_SPLIT,
    BuildProgress,
    Shard,
    StoreCheck,
    Tokenization,
    memory_map,
    open_or_build,
)
from transformer_jax.data.mixture import parts_of
from transformer_jax.data.orders import blocks
from transformer_jax.data.pair_encoding import (
    CHUNK_PAIRS,
    EncodedChunk,
    Sentences,
    chunks_of,
    encoded_chunks,
    filter_settings,
    flattened,
    id_type,
    training_filters,
)
from transformer_jax.data.sentence_pairs import Corpus, DocumentSource, content_of
from transformer_jax.data.shared_stores import open_shared
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair

# Part of every key: raise it when the meaning of files, filters or the order of pairs changes.
STORE_VERSION = 2
DOCUMENT_FORMAT_VERSION = 1
STORE_FILE = "store.json"
DOCUMENTS = "documents"
PAIR_STORES, DOCUMENT_STORES = "token_stores", "document_stores"
SIDES = ("source", "target")
COUNTED_TOKENS = 10_000_000
# Upper ends of the bars of a histogram: 1-5, 6-10, ...
HISTOGRAM_EDGES = (5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400)
BAR_CHARACTERS = 30


class Side(NamedTuple):
    """One side of the pairs: sentence ``i`` is ``ids[offsets[i]:offsets[i + 1]]``, with EOS."""

    ids: np.ndarray
    offsets: np.ndarray

    def sentences(self, indices: np.ndarray) -> Sentences:
        """The sentences at ``indices``, concatenated, int32; reads no others."""
        starts, lengths = self.offsets[indices], self.offsets[indices + 1] - self.offsets[indices]
        skipped = starts - (np.cumsum(lengths) - lengths)
        positions = np.repeat(skipped, lengths) + np.arange(int(lengths.sum()))
        return Sentences(np.asarray(self.ids[positions], np.int32), lengths.astype(np.int32))


@dataclass(frozen=True)
class SideStatistics:
    """Statistics of one side of the kept pairs; lengths are in tokens with EOS. ``histogram``: ``{"1-5": sentences, ...}``."""

    tokens: int
    mean_length: float
    longest: int
    unknown_share: float
    histogram: dict[str, int]


@dataclass(frozen=True)
class StoreStatistics:
    """Statistics of a token store: numbers of pairs ``read``, ``kept`` and ``dropped`` by reason.

    ``corpora``: numbers of kept pairs of the corpora of a mixture, in order.
    """

    split: str
    read: int
    kept: int
    dropped: dict[str, int]
    source: SideStatistics
    target: SideStatistics
    corpora: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: dict) -> "StoreStatistics":
        """Inverse of ``dataclasses.asdict``."""
        return cls(**{**fields, **{side: SideStatistics(**fields[side]) for side in SIDES}})

    def table(self) -> str:
        """The counts as plain text."""
        lines = [f"{self.split}: {self.kept:,} pairs of {self.read:,}"]
        lines += [f"  {name}: {count:,} pairs" for name, count in self.corpora.items()]
        lines += [
            f"  left out: {count:,} of {self.read:,}, {reason}" for reason, count in self.dropped.items() if count
        ]
        for name, side in (("source", self.source), ("target", self.target)):
            lines.append(
                f"  {name}: {side.tokens:,} tokens, {side.mean_length:.1f} a sentence, at most {side.longest}, "
                f"unknown {side.unknown_share:.2%}"
            )
        lines.append(f"  {'tokens':>9}  {'source':>8}  {'target':>8}")
        tallest = max(self.target.histogram.values(), default=0) or 1
        for label, count in self.target.histogram.items():
            of_source = self.source.histogram[label]
            if count or of_source:
                bar = "#" * round(BAR_CHARACTERS * count / tallest)
                lines.append(f"  {label:>9}  {of_source:>8,}  {count:>8,}  {bar}".rstrip())
        return "\n".join(lines)


class TokenStore:
    """Sentence pairs as memory-mapped token ids, with EOS.

    Raises ValueError when ``directory`` does not hold a complete store.
    """

    def __init__(self, directory: Path) -> None:
        description = parse_json((directory / STORE_FILE).read_text(encoding="utf-8"))
        self.statistics = StoreStatistics.from_json(description["statistics"])
        self.num_pairs = self.statistics.kept
        self.source_side, self.target_side = (
            Side(
                memory_map(
                    directory / f"{side}.ids", description["id_types"][side], getattr(self.statistics, side).tokens
                ),
                memory_map(directory / f"{side}.offsets", "int64", self.num_pairs + 1),
            )
            for side in SIDES
        )
        self.check = StoreCheck(directory)

    def counts(self) -> dict[str, int]:
        """Pairs read, kept and left out, and tokens of both sides."""
        found = self.statistics
        dropped = {f"left out: {reason}": count for reason, count in found.dropped.items()}
        tokens = {f"{side} tokens": getattr(found, side).tokens for side in SIDES}
        corpora = {f"pairs of {name}": count for name, count in found.corpora.items()}
        return {"pairs read": found.read, "pairs": found.kept, **corpora, **dropped, **tokens}

    def lengths(self, number: int | None = None) -> np.ndarray:
        """Source and target tokens of the first ``number`` pairs (default: all), uint16 or int32 ``[2, pairs]``."""
        number = self.num_pairs if number is None else min(number, self.num_pairs)
        longest = max(self.statistics.source.longest, self.statistics.target.longest)
        # Both lengths of a pair are neighbors in memory.
        found = np.empty((number, 2), np.uint16 if longest < 1 << 16 else np.int32).T
        for row, side in zip(found, (self.source_side, self.target_side), strict=True):
            for begin, end in blocks(number):
                row[begin:end] = np.diff(side.offsets[begin : end + 1])
        return found


class DocumentStore:
    """Documents as memory-mapped token ids, with an EOS after each.

    Document ``i`` is ``ids[offsets[i]:offsets[i + 1]]``, and ends at byte ``byte_offsets[i + 1]`` of the text.

    Raises ValueError when ``directory`` does not hold a complete store.
    """

    def __init__(self, directory: Path) -> None:
        description = parse_json((directory / STORE_FILE).read_text(encoding="utf-8"))
        self.statistics = SideStatistics(**description["statistics"])
        self.num_documents, self.num_bytes = int(description["documents"]), int(description["bytes"])
        self.num_tokens = self.statistics.tokens
        self.ids = memory_map(directory / f"{DOCUMENTS}.ids", description["id_type"], self.num_tokens)
        self.offsets = memory_map(directory / f"{DOCUMENTS}.offsets", "int64", self.num_documents + 1)
        self.byte_offsets = memory_map(directory / f"{DOCUMENTS}.bytes", "int64", self.num_documents + 1)
        self.check = StoreCheck(directory)

    def counts(self) -> dict[str, int]:
        """Documents, their bytes and their tokens."""
        return {"documents": self.num_documents, "bytes": self.num_bytes, "tokens": self.num_tokens}

    def to_json(self) -> dict[str, object]:
        """A JSON object of counts."""
        return self.counts() | {"bytes_per_token": self.num_bytes / self.num_tokens}


def open_token_store(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, *, is_training: bool
) -> TokenStore:
    """The store of a split, from the cache if the same content was tokenized in the same way before, else built.

    Filters apply only with ``is_training``. Raises DataError when no pair is left, with the number of pairs that each filter
    left out, and when the cache cannot be written.
    """
    if is_training and config.store:
        work = tokenization_of_pairs(corpus, split, tokenizers, config)
        store = open_shared(work, config.store, config.cache_directory)
    else:
        name = _pairs_name(corpus, split, tokenizers, config if is_training else None)
        write = partial(_write_pairs, corpus, split, tokenizers, config if is_training else None)
        store = open_or_build(config.cache_directory, f"{PAIR_STORES}/{name}", TokenStore, write)
    if store.num_pairs == 0:
        read, dropped = store.statistics.read, store.statistics.dropped
        why = "; ".join(f"{count:,} of {read:,}: {reason}" for reason, count in dropped.items() if count)
        remedy = f"left out were {why}; look at the text, or raise data.max_*_tokens" if why else "the split is empty"
        raise DataError(f"data: no pair of the split {split!r} is left: {remedy}")
    return store


def tokenization_of_pairs(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig
) -> Tokenization[TokenStore]:
    """How a training split is tokenized."""

    def join(stores: Iterable[TokenStore], directory: Path) -> None:
        chunks = (chunk for store in stores for chunk in _stored_chunks(store))
        _write_chunks(split, chunks, tokenizers, directory, Counter())

    seed = getattr(corpus, "seed", None) if config.held_out else None
    chosen = config.text_settings() | {"data.seed": seed}
    settings = _pairs_settings(corpus, split, tokenizers, config) | chosen
    name = partial(_pairs_name, corpus, split, tokenizers, config)
    write = partial(_write_pairs, corpus, split, tokenizers, config)
    return Tokenization(
        PAIR_STORES, name, settings, partial(content_of, corpus, split), TokenStore, TokenStore.counts, write, join
    )


def open_document_store(
    source: DocumentSource, split: str, tokenizer: Tokenizer, cache_directory: str
) -> DocumentStore:
    """The store of a split, from the cache if the same text was tokenized in the same way before, else built.

    Memory holds a few million characters and the longest document. Raises DataError when there is no text, and when the cache
    cannot be written.
    """
    write = partial(_write_documents, source, split, tokenizer)
    name = f"{DOCUMENT_STORES}/{_documents_name(source, split, tokenizer)}"
    return with_text(open_or_build(cache_directory, name, DocumentStore, write), split)


def with_text(store: DocumentStore, split: str) -> DocumentStore:
    """The store of a split; raises DataError where it has no document."""
    if not store.num_documents:
        raise DataError(f"data: the split {split!r} has no text; give more, or hold out more of it with data.held_out")
    return store


def tokenization_of_documents(
    source: DocumentSource, split: str, tokenizer: Tokenizer, config: SourceConfig
) -> Tokenization[DocumentStore]:
    """How a training split of documents is tokenized."""

    def join(stores: Iterable[DocumentStore], directory: Path) -> None:
        _write_document_chunks((chunk for store in stores for chunk in _stored_documents(store)), tokenizer, directory)

    settings = {"format": DOCUMENT_FORMAT_VERSION, "split": split, "tokenizer": tokenizer.fingerprint()}
    settings |= config.text_settings()
    name, write = (
        partial(_documents_name, source, split, tokenizer),
        partial(_write_documents, source, split, tokenizer),
    )
    return Tokenization(
        DOCUMENT_STORES,
        name,
        settings,
        partial(content_of, source, split),
        DocumentStore,
        DocumentStore.counts,
        write,
        join,
    )


def unigram_entropy(ids: np.ndarray) -> float:
    """The entropy of token frequencies in nats, the loss of a unigram model; counts the first 10 million tokens."""
    counts = np.bincount(np.asarray(ids[:COUNTED_TOKENS], np.int64))
    shares = counts[counts > 0] / counts.sum()
    return float(-np.sum(shares * np.log(shares)))


def _name(split: str, identity: object) -> str:
    """The folder of a store: the split, and a digest of everything that determines the content."""
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    return re.sub(r"[^\w.-]+", "_", split)[:40] + f"-{key}"


class SideWriter:
    """Context manager that appends sentences to ``{side}.ids`` (flat) and ``{side}.offsets`` (int64), and counts them."""

    def __init__(self, directory: Path, side: str, tokenizer: Tokenizer) -> None:
        self._ids = open(directory / f"{side}.ids", "wb")  # noqa: SIM115 - closed on exit
        self._offsets = open(directory / f"{side}.offsets", "wb")  # noqa: SIM115
        self.id_type = id_type(tokenizer)
        self.sentences = self._tokens = self._unknown = self._longest = 0
        self._bars = np.zeros(len(HISTOGRAM_EDGES) + 1, np.int64)
        np.zeros(1, np.int64).tofile(self._offsets)

    def __enter__(self) -> "SideWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._ids.close()
        self._offsets.close()

    def append(self, sentences: Sentences) -> None:
        """Writes sentences."""
        ids, lengths = sentences
        ids.astype(self.id_type, copy=False).tofile(self._ids)
        (self._tokens + np.cumsum(lengths, dtype=np.int64)).tofile(self._offsets)
        self.sentences += len(lengths)
        self._tokens += int(lengths.sum())
        self._unknown += int((ids == UNK_ID).sum())
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        self._bars += np.bincount(np.searchsorted(HISTOGRAM_EDGES, lengths), minlength=len(self._bars))

    def statistics(self) -> SideStatistics:
        """The counts of all sentences written."""
        lows = [1, *(edge + 1 for edge in HISTOGRAM_EDGES)]
        labels = [*(f"{low}-{high}" for low, high in zip(lows, HISTOGRAM_EDGES, strict=False)), f"above {lows[-1] - 1}"]
        return SideStatistics(
            tokens=self._tokens,
            mean_length=self._tokens / max(self.sentences, 1),
            longest=self._longest,
            unknown_share=self._unknown / max(self._tokens, 1),
            histogram=dict(zip(labels, map(int, self._bars), strict=True)),
        )


def _pairs_settings(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, filtering: DataConfig | None
) -> dict[str, object]:
    """Everything but the text that determines the content of a store."""
    return {
        "format": STORE_VERSION,
        "split": split,
        "languages": [corpus.source_language, corpus.target_language],
        "tokenizers": [tokenizer.fingerprint() for tokenizer in tokenizers],
        "filters": filter_settings(filtering) if filtering else None,
    }


def _pairs_name(corpus: Corpus, split: str, tokenizers: TokenizerPair, filtering: DataConfig | None) -> str:
    identity = _pairs_settings(corpus, split, tokenizers, filtering) | {"corpus": corpus.fingerprint(split)}
    return _name(split, identity)


def _write_pairs(
    corpus: Corpus,
    split: str,
    tokenizers: TokenizerPair,
    filtering: DataConfig | None,
    directory: Path,
    shard: Shard = WHOLE_SPLIT,
) -> None:
    pairs = corpus.count(split)
    times = filtering.segmentations if filtering and filtering.bpe_dropout else 1
    progress = BuildProgress(split, times * pairs // shard.count)

    def chunks() -> Iterator[EncodedChunk]:
        begun = 0
        for name, part in parts_of(corpus, split).items():
            size = part.count(split)
            for number in range(times):
                own = shard.of(part.pairs(split), times * pairs, begun=begun)
                for chunk in encoded_chunks(own, tokenizers, filtering, number):
                    yield chunk._replace(kept={name: len(chunk.source.lengths)}) if name else chunk
                    progress.advance(chunk.read)
                begun += size

    dropped: Counter[str] = Counter(dict.fromkeys(training_filters(filtering) if filtering else (), 0))
    _write_chunks(split, chunks(), tokenizers, directory, dropped)


def _write_chunks(
    split: str, chunks: Iterable[EncodedChunk], tokenizers: TokenizerPair, directory: Path, dropped: Counter[str]
) -> None:
    read, corpora = 0, Counter[str]()
    with (
        SideWriter(directory, "source", tokenizers.source) as source,
        SideWriter(directory, "target", tokenizers.target) as target,
    ):
        for chunk in chunks:
            read += chunk.read
            dropped.update(chunk.dropped)
            corpora.update(chunk.kept)
            source.append(chunk.source)
            target.append(chunk.target)
    sides = source.statistics(), target.statistics()
    counts = StoreStatistics(split, read, source.sentences, dict(dropped), *sides, dict(corpora))
    id_types = {"source": source.id_type.name, "target": target.id_type.name}
    _write_description(directory, {"id_types": id_types, "statistics": asdict(counts)})


def _stored_chunks(store: TokenStore) -> Iterator[EncodedChunk]:
    read, dropped = store.statistics.read, Counter(store.statistics.dropped)
    source, target = (side.sentences(np.arange(0)) for side in (store.source_side, store.target_side))
    yield EncodedChunk(read, dropped, source, target, store.statistics.corpora)
    for begin in range(0, store.num_pairs, CHUNK_PAIRS):
        indices = np.arange(begin, min(begin + CHUNK_PAIRS, store.num_pairs))
        yield EncodedChunk(0, Counter(), store.source_side.sentences(indices), store.target_side.sentences(indices))
    store.check.finish()


def _documents_name(source: DocumentSource, split: str, tokenizer: Tokenizer) -> str:
    identity = [DOCUMENT_FORMAT_VERSION, split, source.fingerprint(split), tokenizer.fingerprint()]
    return _name(split, identity)


def _write_documents(
    source: DocumentSource, split: str, tokenizer: Tokenizer, directory: Path, shard: Shard = WHOLE_SPLIT
) -> None:
    size = source.count_bytes(split)
    progress = BuildProgress(split, size // shard.count, unit="bytes")

    def chunks() -> Iterator[tuple[Sentences, list[int]]]:
        own = shard.of(source.documents(split), size, lambda document: document.num_bytes)
        for chunk in chunks_of(own, lambda document: len(document.text)):
            sizes = [document.num_bytes for document in chunk]
            yield flattened(tokenizer.encode_batch([document.text for document in chunk]), tokenizer), sizes
            progress.advance(sum(sizes))

    _write_document_chunks(chunks(), tokenizer, directory)


def _write_document_chunks(
    chunks: Iterable[tuple[Sentences, Sequence[int]]], tokenizer: Tokenizer, directory: Path
) -> None:
    """Writes chunks of documents with their sizes in bytes."""
    num_bytes = 0
    with (
        SideWriter(directory, DOCUMENTS, tokenizer) as writer,
        open(directory / f"{DOCUMENTS}.bytes", "wb") as byte_offsets,
    ):
        np.zeros(1, np.int64).tofile(byte_offsets)
        for sentences, sizes in chunks:
            writer.append(sentences)
            ends = num_bytes + np.cumsum(sizes, dtype=np.int64)
            ends.tofile(byte_offsets)
            num_bytes = int(ends[-1])
    content = {"id_type": writer.id_type.name, "documents": writer.sentences, "bytes": num_bytes}
    _write_description(directory, content | {"statistics": asdict(writer.statistics())})


def _stored_documents(store: DocumentStore) -> Iterator[tuple[Sentences, list[int]]]:
    side, sizes = Side(store.ids, store.offsets), np.diff(store.byte_offsets).tolist()
    for begin in range(0, store.num_documents, CHUNK_PAIRS):
        end = min(begin + CHUNK_PAIRS, store.num_documents)
        yield side.sentences(np.arange(begin, end)), sizes[begin:end]
    store.check.finish()


def _write_description(directory: Path, content: dict[str, object]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (directory / STORE_FILE).write_text(text, encoding="utf-8")
