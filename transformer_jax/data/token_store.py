"""Corpus splits, tokenized once and stored as memory-mapped arrays: sentence pairs, or documents of plain text."""

import gc
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.array_types import UNK_ID
from transformer_jax.config import DataConfig, DataError
from transformer_jax.config.data import SourceConfig
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.cached_stores import (
    WHOLE_SPLIT,
    BuildProgress,
    Shard,
    SplitStore,
    StoreCheck,
    Tokenization,
    memory_map,
)
from transformer_jax.data.mixture import parts_of, ranges_of
from transformer_jax.data.orders import blocks, joined_ranges
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
from transformer_jax.data.ranged_ids import Ids, OpenIds, fetch_ids
from transformer_jax.data.sentence_pairs import Corpus, Document, DocumentSource, content_of, no_text, pairs_after
from transformer_jax.data.shared_stores import open_shared
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.runtime.startup import available_cores

# Part of every key: raise it when the meaning of files, filters or the order of pairs changes.
STORE_VERSION = 2
DOCUMENT_FORMAT_VERSION = 1
STORE_FILE = "store.json"
DOCUMENTS = "documents"
SIDES = ("source", "target")
COUNTED_TOKENS = 10_000_000
HELD_OUT = "held out for validation, or equal to such a pair"
# Upper ends of the bars of a histogram: 1-5, 6-10, ...
HISTOGRAM_EDGES = (5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400)
BAR_CHARACTERS = 30


class Side(NamedTuple):
    """One side of the pairs: sentence ``i`` is ``ids[offsets[i]:offsets[i + 1]]``, with EOS."""

    ids: Ids
    offsets: np.ndarray

    def sentences(self, indices: np.ndarray) -> Sentences:
        """The sentences at ``indices``, concatenated, int32; reads no others."""
        starts, lengths = self.offsets[indices], self.offsets[indices + 1] - self.offsets[indices]
        return Sentences(np.asarray(self.ids[joined_ranges(starts, lengths)], np.int32), lengths.astype(np.int32))


@dataclass(frozen=True)
class SideStatistics:
    """Statistics of one side of the kept pairs; lengths are in tokens with EOS. ``histogram``: ``{"1-5": sentences, ...}``."""

    tokens: int
    mean_length: float
    longest: int
    unknown_share: float
    histogram: dict[str, int]

    @classmethod
    def joined(cls, parts: Sequence["SideStatistics"], sentences: int) -> "SideStatistics":
        """The statistics of all ``parts``, which have ``sentences`` sentences."""
        tokens = sum(part.tokens for part in parts)
        unknown = sum(round(part.unknown_share * part.tokens) for part in parts)
        histogram = {label: sum(part.histogram[label] for part in parts) for label in parts[0].histogram}
        longest = max(part.longest for part in parts)
        return cls(tokens, tokens / max(sentences, 1), longest, unknown / max(tokens, 1), histogram)


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

    @classmethod
    def joined(cls, parts: Sequence["StoreStatistics"]) -> "StoreStatistics":
        """The statistics of all ``parts``."""
        read, kept = sum(part.read for part in parts), sum(part.kept for part in parts)
        dropped, corpora = (_summed([getattr(part, name) for part in parts]) for name in ("dropped", "corpora"))
        source, target = (SideStatistics.joined([getattr(part, side) for part in parts], kept) for side in SIDES)
        return cls(parts[0].split, read, kept, dropped, source, target, corpora)

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


class TokenStore(SplitStore):
    """Sentence pairs as token ids, memory-mapped unless ``open_ids`` reads them otherwise, with EOS.

    Raises ValueError when ``directory`` does not hold a complete store.
    """

    def __init__(self, directory: Path, open_ids: OpenIds = memory_map) -> None:
        self.description = description = parse_json((directory / STORE_FILE).read_text(encoding="utf-8"))
        self.statistics = StoreStatistics.from_json(description["statistics"])
        self.num_pairs = self.statistics.kept
        self.arrays = {}
        for side in SIDES:
            tokens, dtype = getattr(self.statistics, side).tokens, description["id_types"][side]
            self.arrays[f"{side}.ids"] = open_ids(directory / f"{side}.ids", dtype, tokens)
            self.arrays[f"{side}.offsets"] = memory_map(directory / f"{side}.offsets", "int64", self.num_pairs + 1)
        self.source_side, self.target_side = (
            Side(self.arrays[f"{side}.ids"], self.arrays[f"{side}.offsets"]) for side in SIDES
        )
        self.check = StoreCheck(directory)

    def fetch(self, pairs: np.ndarray) -> None:
        """Reads the tokens of some pairs ahead, where they are in an object store."""
        for side in (self.source_side, self.target_side):
            fetch_ids(side.ids, side.offsets[pairs], side.offsets[pairs + 1])

    def counts(self) -> dict[str, int]:
        """Pairs read, kept and left out, and tokens of both sides."""
        found = self.statistics
        dropped = {f"left out: {reason}": count for reason, count in found.dropped.items()}
        tokens = {f"{side} tokens": getattr(found, side).tokens for side in SIDES}
        corpora = {f"pairs of {name}": count for name, count in found.corpora.items()}
        return {"pairs read": found.read, "pairs": found.kept, **corpora, **dropped, **tokens}

    def lengths(self, number: int | None = None, first: int = 0) -> np.ndarray:
        """Source and target tokens of ``number`` pairs (default: all) from ``first``, uint16 or int32 ``[2, pairs]``."""
        left = self.num_pairs - first
        number = left if number is None else min(number, left)
        longest = max(self.statistics.source.longest, self.statistics.target.longest)
        # Both lengths of a pair are neighbors in memory.
        found = np.empty((number, 2), np.uint16 if longest < 1 << 16 else np.int32).T
        for row, side in zip(found, (self.source_side, self.target_side), strict=True):
            for begin, end in blocks(number):
                row[begin:end] = np.diff(side.offsets[first + begin : first + end + 1])
        return found


class DocumentStore(SplitStore):
    """Documents as token ids, memory-mapped unless ``open_ids`` reads them otherwise, with an EOS after each.

    Document ``i`` is ``ids[offsets[i]:offsets[i + 1]]``, and ends at byte ``byte_offsets[i + 1]`` of the text. ``corpora``:
    numbers of documents of the corpora of a mixture, in order.

    Raises ValueError when ``directory`` does not hold a complete store.
    """

    def __init__(self, directory: Path, open_ids: OpenIds = memory_map) -> None:
        self.description = description = parse_json((directory / STORE_FILE).read_text(encoding="utf-8"))
        self.statistics = SideStatistics(**description["statistics"])
        self.num_documents, self.num_bytes = int(description["documents"]), int(description["bytes"])
        self.num_tokens, self.corpora = self.statistics.tokens, dict(description.get("corpora", {}))
        self.ids = open_ids(directory / f"{DOCUMENTS}.ids", description["id_type"], self.num_tokens)
        self.offsets = memory_map(directory / f"{DOCUMENTS}.offsets", "int64", self.num_documents + 1)
        self.byte_offsets = memory_map(directory / f"{DOCUMENTS}.bytes", "int64", self.num_documents + 1)
        self.arrays = {f"{DOCUMENTS}.ids": self.ids, f"{DOCUMENTS}.offsets": self.offsets}
        self.arrays |= {f"{DOCUMENTS}.bytes": self.byte_offsets}
        self.check = StoreCheck(directory)

    def counts(self) -> dict[str, int]:
        """Documents, their bytes and their tokens."""
        corpora = {f"documents of {name}": count for name, count in self.corpora.items()}
        return {"documents": self.num_documents, **corpora, "bytes": self.num_bytes, "tokens": self.num_tokens}

    def to_json(self) -> dict[str, object]:
        """A JSON object of counts."""
        return self.counts() | {"bytes_per_token": self.num_bytes / self.num_tokens}


def _threads(shard: Shard) -> int:
    """The threads that encode a shard; other shards use the other cores."""
    return available_cores() if shard == WHOLE_SPLIT else 1


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collects garbage after 100,000 new containers in place of about 2,000: the lists of a chunk have no cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def open_token_store(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, *, is_training: bool
) -> TokenStore:
    """The store of a split, from the cache if the same content was tokenized in the same way before, else built.

    Filters apply only with ``is_training``. Raises DataError when no pair is left, with the number of pairs that each filter
    left out, and when the cache cannot be written.
    """
    work = PairTokenization(corpus, split, tokenizers, config if is_training else None)
    cache = config.cache_directory
    store = open_shared(work, config.store, cache) if is_training and config.store else work.opened(cache)
    if store.num_pairs == 0:
        read, dropped = store.statistics.read, store.statistics.dropped
        why = "; ".join(f"{count:,} of {read:,}: {reason}" for reason, count in dropped.items() if count)
        remedy = f"left out were {why}; look at the text, or raise data.max_*_tokens" if why else "the split is empty"
        raise DataError(f"data: no pair of the split {split!r} is left: {remedy}")
    return store


@dataclass(frozen=True)
class PairTokenization(Tokenization[TokenStore]):
    """How a split of pairs is tokenized; ``filtering``: the settings of training, None without filters."""

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
    def write(self, directory: Path, shard: Shard = WHOLE_SPLIT) -> None:
        dropped = Counter(dict.fromkeys(training_filters(self.filtering) if self.filtering else (), 0))
        read, corpora = 0, Counter[str]()
        with (
            SideWriter(directory, "source", self.tokenizers.source) as source,
            SideWriter(directory, "target", self.tokenizers.target) as target,
        ):
            for name, chunk in self._chunks(shard):
                read += chunk.read
                dropped.update(chunk.dropped)
                corpora[name] += len(chunk.source.lengths)
                source.append(chunk.source)
                target.append(chunk.target)
        sides = source.statistics(), target.statistics()
        counts = StoreStatistics(self.split, read, source.sentences, dict(dropped), *sides, _named(corpora))
        id_types = {"source": source.id_type.name, "target": target.id_type.name}
        _write_description(directory, {"id_types": id_types, "statistics": asdict(counts)})

    def _chunks(self, shard: Shard) -> Iterator[tuple[str, EncodedChunk]]:
        """The chunks of a shard with the names of their corpora; the first chunk of a corpus is empty."""
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
                own = islice(pairs_after(part, self.split, begin - begun), max(end - begin, 0))
                for chunk in encoded_chunks(own, self.tokenizers, config, number, _threads(shard)):
                    yield name, chunk
                    progress.advance(chunk.read)
                begun += sizes[name]
            if config and config.held_out and shard.index == shard.count - 1:
                missing = times * (sizes[name] - sum(1 for _ in part.pairs(self.split)))
                yield name, EncodedChunk(missing, Counter({HELD_OUT: missing}), source, target)

    def join(self, stores: Iterable[TokenStore], directory: Path) -> None:
        parts = _joined_arrays(stores, directory)
        statistics = StoreStatistics.joined([StoreStatistics.from_json(part["statistics"]) for part in parts])
        _write_description(directory, parts[0] | {"statistics": asdict(statistics)})


@dataclass(frozen=True)
class DocumentTokenization(Tokenization[DocumentStore]):
    """How a split of documents is tokenized. Memory holds a few million characters and the longest document."""

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
    def write(self, directory: Path, shard: Shard = WHOLE_SPLIT) -> None:
        num_bytes, corpora = 0, Counter[str]()
        progress = BuildProgress(self.split, self.source.count_bytes(self.split) // shard.count, unit="bytes")
        with (
            SideWriter(directory, DOCUMENTS, self.tokenizer) as writer,
            open(directory / f"{DOCUMENTS}.bytes", "wb") as byte_offsets,
        ):
            np.zeros(1, np.int64).tofile(byte_offsets)
            for name, documents in self._documents(shard):
                corpora[name] += 0
                for chunk in chunks_of(documents, lambda document: len(document.text)):
                    sizes = [document.num_bytes for document in chunk]
                    texts = self.tokenizer.encode_batch(
                        [document.text for document in chunk], num_threads=_threads(shard)
                    )
                    writer.append(flattened(texts, self.tokenizer))
                    (num_bytes + np.cumsum(sizes, dtype=np.int64)).tofile(byte_offsets)
                    num_bytes += sum(sizes)
                    corpora[name] += len(chunk)
                    progress.advance(sum(sizes))
        content: dict[str, object] = {"id_type": writer.id_type.name, "documents": writer.sentences, "bytes": num_bytes}
        content |= {"corpora": _named(corpora)} if _named(corpora) else {}
        _write_description(directory, content | {"statistics": asdict(writer.statistics())})

    def _documents(self, shard: Shard) -> Iterator[tuple[str, Iterator[Document]]]:
        """The documents of each corpus that begin in a shard."""

        def own(part: DocumentSource, begun: int) -> Iterator[Document]:
            for document in part.documents(self.split):
                if begun >= end:
                    return
                if begun >= first:
                    yield document
                begun += document.num_bytes

        (first, end), begun = shard.bounds(self.source.count_bytes(self.split)), 0
        for name, part in parts_of(self.source, self.split).items():
            yield name, own(part, begun)
            begun += part.count_bytes(self.split)

    def join(self, stores: Iterable[DocumentStore], directory: Path) -> None:
        parts = _joined_arrays(stores, directory)
        sums = {name: sum(part[name] for part in parts) for name in ("documents", "bytes")}
        corpora = {"corpora": _summed([part["corpora"] for part in parts])} if "corpora" in parts[0] else {}
        sides = [SideStatistics(**part["statistics"]) for part in parts]
        statistics = {"statistics": asdict(SideStatistics.joined(sides, sums["documents"]))}
        _write_description(directory, parts[0] | sums | corpora | statistics)


def open_document_store(
    source: DocumentSource, split: str, tokenizer: Tokenizer, config: SourceConfig, *, is_training: bool = False
) -> DocumentStore:
    """The store of a split, as ``open_token_store``; raises DataError when there is no text."""
    work, cache = DocumentTokenization(source, split, tokenizer, config), config.cache_directory
    store = open_shared(work, config.store, cache) if is_training and config.store else work.opened(cache)
    if not store.num_documents:
        raise no_text(split)
    return store


def unigram_entropy(
    ids: Ids, sizes: Mapping[str, int] | None = None, times: Mapping[str, float] | None = None
) -> float:
    """The entropy of token frequencies in nats, the loss of a unigram model; counts 10 million tokens.

    ``sizes``: tokens of the corpora of a mixture, which lie in ``ids`` one after the other; ``times``: how often an epoch has
    each.
    """
    sizes = sizes or {"": len(ids)}
    counts = np.zeros(0)
    for name, begin, number in ranges_of(sizes):
        counted = min(number, COUNTED_TOKENS // len(sizes))
        found = np.bincount(np.asarray(ids[begin : begin + counted], np.int64))
        counts = np.pad(counts, (0, max(len(found) - len(counts), 0)))
        counts[: len(found)] += found * ((times or {}).get(name, 1.0) * number / max(counted, 1))
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
        self.id_type = id_type(tokenizer.vocabulary_size)
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


def _joined_arrays(stores: Iterable[SplitStore], directory: Path) -> list[dict[str, Any]]:
    """Appends the arrays of each store to files in a folder, offsets after the last; returns the descriptions of the stores."""
    descriptions, lasts = [], Counter[str]()
    for store in stores:
        for name, array in store.arrays.items():
            with (directory / name).open("ab") as file:
                known = 0 if name.endswith(".ids") or not file.tell() else 1
                for begin, end in blocks(len(array) - known):
                    (array[begin + known : end + known] + lasts[name]).tofile(file)
            if not name.endswith(".ids"):
                lasts[name] += int(array[-1])
        store.check.finish()
        descriptions.append(store.description)
    return descriptions


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums = Counter[str]()
    for each in counts:
        sums.update(each)
    return dict(sums)


def _named(corpora: Mapping[str, int]) -> dict[str, int]:
    """The counts of the corpora of a mixture: one corpus has no name."""
    return {name: count for name, count in corpora.items() if name}


def _write_description(directory: Path, content: dict[str, object]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (directory / STORE_FILE).write_text(text, encoding="utf-8")
