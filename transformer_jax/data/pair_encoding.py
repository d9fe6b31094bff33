"""Sentence pairs as flat arrays of token ids, filtered and in order; processes encode large corpora."""

import itertools
import multiprocessing
import operator
import os
import signal
import tempfile
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataConfig, DataError
from transformer_jax.config.data import GENERATED_SOURCES
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair, load_tokenizers, save_tokenizers
from transformer_jax.data.tokenizers.kinds import Example
from transformer_jax.runtime.startup import available_cores

CHUNK_PAIRS = 8192
CHUNK_CHARACTERS = 4_000_000
# Starting a worker takes the CPU time of 60,000 pairs: smaller corpora are faster without workers.
CHUNKS_WITHOUT_WORKERS = 24
# One process that reads and writes does not keep more workers busy.
MAX_WORKERS = 16
# Longer lines of training text are left out without tokenizing them.
MAX_LINE_BYTES = 1_000_000


class Sentences(NamedTuple):
    """Concatenated sentences: flat ``ids`` with an EOS after each sentence, and ``lengths`` (int32, with EOS)."""

    ids: np.ndarray
    lengths: np.ndarray


class EncodedChunk(NamedTuple):
    """Result of encoding ``read`` consecutive pairs; ``dropped`` counts pairs by reason, ``kept`` by corpus of a mixture."""

    read: int
    dropped: Counter[str]
    source: Sentences
    target: Sentences
    kept: Mapping[str, int] = {}


def training_filters(
    data: DataConfig, chunk: Sequence[SentencePair] = (), sides: Sequence[Sequence[Sequence[int]]] = ((), ())
) -> dict[str, np.ndarray]:
    """The filters of the training split by reason, in order: True for every pair of ``chunk``, with ids, that is left out.

    Token limits do not count EOS, but the length ratio does: one token and no token have the ratio 2.
    """

    def each(function: Callable[..., int], *columns: Iterable[Any]) -> np.ndarray:
        return np.fromiter(map(function, *columns), np.int64, len(chunk))

    sources, targets = zip(*chunk, strict=True) if chunk else ((), ())
    source, target = (each(len, side) for side in sides)
    filters = {
        f"a line above {MAX_LINE_BYTES:,} bytes": each(is_overlong, sources) | each(is_overlong, targets),
        "empty source": each(len, map(str.strip, sources)) == 0,
        "empty target": each(len, map(str.strip, targets)) == 0,
    }
    if data.source not in GENERATED_SOURCES:
        filters["target is the source"] = each(operator.eq, sources, targets)
    return filters | {
        f"source above {data.max_source_tokens} tokens": source > data.max_source_tokens,
        f"target above {data.max_target_tokens} tokens": target > data.max_target_tokens,
        f"one side above {data.max_length_ratio:g} times the other": (
            np.maximum(source, target) + 1 > data.max_length_ratio * (np.minimum(source, target) + 1)
        ),
    }


def reasons_to_drop(
    data: DataConfig, chunk: Sequence[SentencePair], sides: Sequence[Sequence[Sequence[int]]]
) -> dict[int, str]:
    """The first filter of every pair that is left out, by its index."""
    reasons: dict[int, str] = {}
    for reason, applies in training_filters(data, chunk, sides).items():
        for index in np.flatnonzero(applies).tolist():
            reasons.setdefault(index, reason)
    return reasons


def filter_settings(data: DataConfig) -> list[int | float | bool]:
    """The settings that determine which pairs are kept, and how they are segmented."""
    may_be_identical = data.source in GENERATED_SOURCES
    limits = data.max_source_tokens, data.max_target_tokens, data.max_length_ratio
    dropout = [data.bpe_dropout, data.segmentations] if data.bpe_dropout else []
    return [*limits, may_be_identical, MAX_LINE_BYTES, *dropout]


def is_overlong(text: str) -> bool:
    """Whether a line has more than ``MAX_LINE_BYTES`` bytes of UTF-8."""
    return len(text) * 4 > MAX_LINE_BYTES and len(text.encode("utf-8", "surrogatepass")) > MAX_LINE_BYTES


class PairEncoder:
    """Tokenizes and filters chunks of pairs; ``filtering`` None keeps all pairs, as for validation and test.

    ``number``: of the segmentation, where ``data.bpe_dropout`` makes several.
    """

    def __init__(
        self, tokenizers: TokenizerPair, filtering: DataConfig | None, number: int = 0, num_threads: int = -1
    ) -> None:
        self._tokenizers = tokenizers
        self._dropout, self._number = filtering.bpe_dropout if filtering else 0.0, number
        self._filtering, self._num_threads = filtering, num_threads

    def __call__(self, chunk: list[SentencePair]) -> EncodedChunk:
        """Encodes a chunk in order."""
        sides = self.encoded_sides(chunk)
        reasons = reasons_to_drop(self._filtering, chunk, sides) if self._filtering else {}
        if reasons:
            sides = [[ids for index, ids in enumerate(side) if index not in reasons] for side in sides]
        source_side, target_side = (flattened(*each) for each in zip(sides, self._tokenizers, strict=True))
        return EncodedChunk(len(chunk), Counter(reasons.values()), source_side, target_side)

    def encoded_sides(self, chunk: Sequence[SentencePair]) -> list[list[list[int]]]:
        """The ids of the source sentences and of the target sentences."""
        sides = []
        for texts, tokenizer in zip(zip(*chunk, strict=True), self._tokenizers, strict=True):
            short: Sequence[str] = texts
            if self._filtering and max(map(len, texts)) * 4 > MAX_LINE_BYTES:
                short = ["" if is_overlong(text) else text for text in texts]
            if self._dropout:
                # A function of number and text: neither chunks nor workers matter.
                seeds = [zlib.crc32(f"{self._number} {text}".encode("utf-8", "surrogatepass")) for text in short]
                drawn = zip(short, seeds, strict=True)
                sides.append([tokenizer.encode_with_dropout(text, self._dropout, seed) for text, seed in drawn])
            else:
                sides.append(tokenizer.encode_batch(short, num_threads=self._num_threads))
        return sides


def encoded_chunks(
    pairs: Iterator[SentencePair], tokenizers: TokenizerPair, filtering: DataConfig | None, number: int = 0
) -> Iterator[EncodedChunk]:
    """Encodes a stream of pairs in chunks, in order; memory holds a few chunks.

    This process encodes the first chunks, and one process for each core the rest. Raises the errors of ``pairs``, and
    DataError when a worker dies.
    """
    chunks = chunks_of(pairs, lambda pair: len(pair.source) + len(pair.target))
    encode = PairEncoder(tokenizers, filtering, number)
    for chunk in itertools.islice(chunks, CHUNKS_WITHOUT_WORKERS):
        yield encode(chunk)
    following = next(chunks, None)
    if following is not None:
        rest = itertools.chain([following], chunks)
        yield from _encoded_by_workers(rest, tokenizers, filtering, number)


def _encoded_by_workers(
    chunks: Iterator[list[SentencePair]], tokenizers: TokenizerPair, filtering: DataConfig | None, number: int
) -> Iterator[EncodedChunk]:
    num_workers = min(available_cores(), MAX_WORKERS)
    # Not fork: a child of a process with JAX threads may deadlock.
    context = multiprocessing.get_context("spawn")
    waiting: deque[Future[EncodedChunk]] = deque()
    with tempfile.TemporaryDirectory(prefix="tokenizers-") as folder:
        # Not as arguments: this process would wait forever for a worker that dies before it reads a large argument.
        save_tokenizers(tokenizers, folder)
        pool = ProcessPoolExecutor(num_workers, context, _start_worker, (folder, filtering, number))
        try:
            for chunk in chunks:
                waiting.append(pool.submit(_encode_in_worker, chunk))
                if len(waiting) > num_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            causes = "out of memory, or a script that trains without the line `if __name__ == '__main__':`"
            raise DataError(f"data: a worker process that tokenizes died: {causes}; its message is above") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker(folder: str, filtering: DataConfig | None, number: int) -> None:
    global _encoder
    # The parent handles Ctrl-C and ends its workers; they also end when the parent is killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _encoder = PairEncoder(load_tokenizers(folder), filtering, number, num_threads=1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_encoder: PairEncoder


def _encode_in_worker(chunk: list[SentencePair]) -> EncodedChunk:
    return _encoder(chunk)


def chunks_of(examples: Iterable[Example], characters_of: Callable[[Example], int]) -> Iterator[list[Example]]:
    """Lists of consecutive examples, which end at ``CHUNK_PAIRS`` examples or ``CHUNK_CHARACTERS`` characters."""
    chunk: list[Example] = []
    characters = 0
    for example in examples:
        chunk.append(example)
        characters += characters_of(example)
        if len(chunk) == CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def id_type(tokenizer: Tokenizer) -> np.dtype:
    """The smallest of uint16 and int32 that holds every id."""
    return np.dtype(np.uint16 if tokenizer.vocabulary_size <= 1 << 16 else np.int32)


def flattened(sentences: Sequence[Sequence[int]], tokenizer: Tokenizer) -> Sentences:
    """Concatenates sentences, with an EOS after each."""
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences)) + np.int32(1)
    ends = np.cumsum(lengths, dtype=np.int64)
    ids = np.full(ends[-1] if len(ends) else 0, EOS_ID, id_type(tokenizer))
    is_token = np.ones(len(ids), bool)
    is_token[ends - 1] = False
    ids[is_token] = np.fromiter(itertools.chain.from_iterable(sentences), ids.dtype, len(ids) - len(ends))
    return Sentences(ids, lengths)


def joined(sentences: Sequence[Sequence[int]]) -> Sentences:
    """Concatenates sentences that end with EOS."""
    lengths = np.array([len(ids) for ids in sentences], np.int32)
    return Sentences(np.fromiter(itertools.chain.from_iterable(sentences), np.int32, int(lengths.sum())), lengths)
