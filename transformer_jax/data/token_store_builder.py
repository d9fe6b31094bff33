"""Tokenising a corpus split into memory-mapped arrays: in parallel, in one pass, in memory that does not grow with it."""

import itertools
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from transformer_jax.array_types import EOS_ID, UNK_ID
from transformer_jax.config import DataConfig
from transformer_jax.data.filters import MAX_LINE_CHARACTERS, EncodedPair, training_filters
from transformer_jax.data.sentence_pairs import Corpus, SentencePair
from transformer_jax.data.statistics import StoreStatistics, length_histogram
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair

CHUNK_PAIRS = 4096


class SideWriter:
    """Appends sentences of one side to a flat file of ids, and remembers their lengths."""

    def __init__(self, directory: Path, side: str, vocabulary_size: int) -> None:
        self._directory, self._side = directory, side
        self._dtype = np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.int32)
        self._raw = (directory / f"{side}.raw").open("wb")
        self.lengths: list[np.ndarray] = []
        self.unknown = 0

    def append(self, sentences: list[list[int]]) -> None:
        """Writes sentences, each followed by EOS."""
        flat = np.fromiter(itertools.chain.from_iterable([*ids, EOS_ID] for ids in sentences), self._dtype)
        self.unknown += int((flat == UNK_ID).sum())
        self.lengths.append(np.array([len(ids) + 1 for ids in sentences], np.int32))
        flat.tofile(self._raw)

    def finish(self) -> np.ndarray:
        """Gives the ids their final file, writes the offsets, and returns all lengths."""
        self._raw.close()
        raw = self._directory / f"{self._side}.raw"
        lengths = np.concatenate([np.zeros(0, np.int32), *self.lengths])
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        np.save(self._directory / f"{self._side}_offsets.npy", offsets)
        ids_file = self._directory / f"{self._side}_ids.npy"
        if offsets[-1]:
            ids = open_memmap(ids_file, mode="w+", dtype=self._dtype, shape=(int(offsets[-1]),))
            with raw.open("rb") as file:
                for start in range(0, len(ids), 1 << 22):
                    part = np.fromfile(file, self._dtype, min(1 << 22, len(ids) - start))
                    ids[start : start + len(part)] = part
            ids.flush()
        else:
            np.save(ids_file, np.zeros(0, self._dtype))
        raw.unlink()
        return lengths


def build_token_store(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, directory: Path, *, is_training: bool
) -> None:
    """Writes the store of a split to ``directory``, which appears under its name only when it is complete."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}.partial-", dir=directory.parent))
    try:
        statistics = _write(corpus, split, tokenizers, config, partial, is_training)
        content = json.dumps(statistics.to_json(), indent=2, ensure_ascii=False)
        (partial / "statistics.json").write_text(content, encoding="utf-8")
        try:
            partial.rename(directory)
        except OSError:
            # Another process was first, with the same content; or an older one died before it was complete.
            if not (directory / "statistics.json").is_file():
                shutil.rmtree(directory)
                partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, directory: Path, is_training: bool
) -> StoreStatistics:
    filters = training_filters(config) if is_training else {}
    dropped: Counter[str] = Counter(dict.fromkeys(filters, 0))
    writers = [
        SideWriter(directory, side, tokenizer.vocabulary_size)
        for side, tokenizer in zip(("source", "target"), tokenizers, strict=True)
    ]
    read = 0
    for chunk in _encoded_chunks(corpus.pairs(split), tokenizers, split, skip_overlong=is_training):
        read += len(chunk)
        kept = []
        for pair in chunk:
            reason = next((reason for reason, applies in filters.items() if applies(pair)), None)
            if reason is None:
                kept.append(pair)
            else:
                dropped[reason] += 1
        writers[0].append([pair.source_ids for pair in kept])
        writers[1].append([pair.target_ids for pair in kept])
    source_lengths, target_lengths = (writer.finish() for writer in writers)
    return StoreStatistics(
        split=split,
        read=read,
        kept=len(source_lengths),
        dropped=dict(dropped),
        source_tokens=int(source_lengths.sum()),
        target_tokens=int(target_lengths.sum()),
        source_unknown=writers[0].unknown,
        target_unknown=writers[1].unknown,
        longest_source=int(source_lengths.max(initial=0)),
        longest_target=int(target_lengths.max(initial=0)),
        target_histogram=length_histogram(target_lengths),
    )


def _encoded_chunks(
    pairs: Iterator[SentencePair], tokenizers: TokenizerPair, split: str, *, skip_overlong: bool
) -> Iterator[list[EncodedPair]]:
    """Encodes chunk after chunk on all cores, a few chunks ahead; the subword encoder works outside Python's lock."""
    workers = os.cpu_count() or 1
    limit = MAX_LINE_CHARACTERS if skip_overlong else None
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("tokenising {task.description}: {task.completed:,} pairs"), TimeElapsedColumn()
    with (
        ThreadPoolExecutor(workers) as pool,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task(split, total=None)
        waiting = []
        while True:
            while len(waiting) < 2 * workers and (chunk := list(itertools.islice(pairs, CHUNK_PAIRS))):
                waiting.append(pool.submit(_encode, chunk, tokenizers, limit))
            if not waiting:
                return
            encoded = waiting.pop(0).result()
            progress.advance(task, len(encoded))
            yield encoded


def _encode(chunk: list[SentencePair], tokenizers: TokenizerPair, limit: int | None) -> list[EncodedPair]:
    sources = _encode_side([pair.source for pair in chunk], tokenizers.source, limit)
    targets = _encode_side([pair.target for pair in chunk], tokenizers.target, limit)
    return [EncodedPair(*pair, *ids) for pair, *ids in zip(chunk, sources, targets, strict=True)]


def _encode_side(texts: list[str], tokenizer: Tokenizer, limit: int | None) -> list[list[int]]:
    return tokenizer.encode_batch([text if limit is None or len(text) <= limit else "" for text in texts])
