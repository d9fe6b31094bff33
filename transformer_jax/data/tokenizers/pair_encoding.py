"""Sentence pairs to flat arrays of token ids: filtered, in order, on all cores once there are many."""

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataConfig, DataError
from transformer_jax.data.filters import EncodedPair, is_overlong, training_filters
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair, tokenizer_from_bytes

CHUNK_PAIRS = 8192
CHUNK_CHARACTERS = 4_000_000
# To start, a worker needs as much of a core as 60,000 pairs do: a smaller corpus than this is sooner done without.
CHUNKS_WITHOUT_WORKERS = 24
# Reading, handing round and writing take a quarter of the work: one process does not keep more of them busy.
MAX_WORKERS = 16


class Sentences(NamedTuple):
    """Sentences one after another: flat ``ids`` with an EOS after each, and their ``lengths`` (int32, EOS included)."""

    ids: np.ndarray
    lengths: np.ndarray


class EncodedChunk(NamedTuple):
    """Result of encoding ``read`` consecutive pairs; ``dropped`` counts pairs by reason."""

    read: int
    dropped: Counter[str]
    source: Sentences
    target: Sentences


class PairEncoder:
    """Tokenizes and filters chunks of pairs. ``filtering`` None keeps everything, as validation and test need."""

    def __init__(self, tokenizers: TokenizerPair, filtering: DataConfig | None, num_threads: int = -1) -> None:
        self._tokenizers = tokenizers
        self._filters = training_filters(filtering) if filtering else {}
        self._num_threads = num_threads

    def __call__(self, chunk: list[SentencePair]) -> EncodedChunk:
        """Encodes a chunk; the order of the kept pairs is that of the chunk."""
        sources = self._side([pair.source for pair in chunk], self._tokenizers.source)
        targets = self._side([pair.target for pair in chunk], self._tokenizers.target)
        dropped: Counter[str] = Counter()
        kept = []
        for (source, target), source_ids, target_ids in zip(chunk, sources, targets, strict=True):
            pair = EncodedPair(source, target, source_ids, target_ids)
            reason = next((reason for reason, applies in self._filters.items() if applies(pair)), None)
            if reason is None:
                kept.append(pair)
            else:
                dropped[reason] += 1
        source_side = flattened([pair.source_ids for pair in kept], self._tokenizers.source)
        target_side = flattened([pair.target_ids for pair in kept], self._tokenizers.target)
        return EncodedChunk(len(chunk), dropped, source_side, target_side)

    def _side(self, texts: list[str], tokenizer: Tokenizer) -> list[list[int]]:
        if self._filters:
            texts = ["" if is_overlong(text) else text for text in texts]
        return tokenizer.encode_batch(texts, num_threads=self._num_threads)


def id_type(tokenizer: Tokenizer) -> np.dtype:
    """The smallest of uint16 and int32 that holds every id."""
    return np.dtype(np.uint16 if tokenizer.vocabulary_size <= 1 << 16 else np.int32)


def encoded_chunks(
    pairs: Iterator[SentencePair], tokenizers: TokenizerPair, filtering: DataConfig | None, *, num_workers: int = 0
) -> Iterator[EncodedChunk]:
    """Encodes a stream of pairs, chunk after chunk in order; memory holds a few chunks, whatever the corpus.

    The first chunks are encoded here and the rest by ``num_workers`` processes (0: one a core, to a limit). Whatever
    ``pairs`` raises is raised; raises DataError when a worker dies.
    """
    chunks = _chunks(pairs)
    encode = PairEncoder(tokenizers, filtering)
    for chunk in itertools.islice(chunks, CHUNKS_WITHOUT_WORKERS):
        yield encode(chunk)
    following = next(chunks, None)
    if following is None:
        return
    yield from _encoded_by_workers(
        itertools.chain([following], chunks), tokenizers, filtering, num_workers or min(available_cores(), MAX_WORKERS)
    )


def _encoded_by_workers(
    chunks: Iterator[list[SentencePair]], tokenizers: TokenizerPair, filtering: DataConfig | None, num_workers: int
) -> Iterator[EncodedChunk]:
    """Distributes the chunks; each worker has one at a time, so that neither end of a pipe waits for the other.

    Not a ProcessPoolExecutor, whose processes outlive a parent that was killed, and wait for ever in a script without a
    guarded main; these end with the pipe.
    """
    # Not fork: the child of a process in which JAX runs its threads may never wake up.
    context = multiprocessing.get_context("spawn")
    described = tuple((tokenizer.kind, tokenizer.to_bytes()) for tokenizer in tokenizers)
    connections: list[Connection] = []
    busy: deque[Connection] = deque()
    try:
        # All at once, since each needs a second to start; what they need to know follows through the pipe, because a child
        # that dies early would leave start() waiting with it.
        connections.extend(_start_worker(context) for _ in range(num_workers))
        for index, chunk in enumerate(chunks):
            if index < num_workers:
                connection = connections[index]
                connection.send((described, filtering))
            else:
                connection = busy.popleft()
                yield connection.recv()
            connection.send(chunk)
            busy.append(connection)
        while busy:
            yield busy.popleft().recv()
    except (EOFError, ConnectionError) as error:
        causes = "out of memory, or a script that trains without the line `if __name__ == '__main__':`"
        raise DataError(f"data: a process that tokenized has died: {causes}; its own message is above") from error
    finally:
        for connection in connections:
            connection.close()


def _start_worker(context: SpawnContext) -> Connection:
    connection, other_end = context.Pipe()
    context.Process(target=_work, args=(other_end,), daemon=True).start()
    other_end.close()
    return connection


def _work(connection: Connection) -> None:
    """Main function of a worker: receives the encoder, then encodes chunks until the pipe is closed."""
    # The parent handles Ctrl-C and then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, ConnectionError):
        described, filtering = connection.recv()
        source, target = (tokenizer_from_bytes(kind, data) for kind, data in described)
        encode = PairEncoder(TokenizerPair(source, target), filtering, num_threads=1)
        while True:
            connection.send(encode(connection.recv()))


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(pairs: Iterator[SentencePair]) -> Iterator[list[SentencePair]]:
    """Consecutive pairs, at most ``CHUNK_PAIRS`` in total and not many more than ``CHUNK_CHARACTERS``."""
    chunk: list[SentencePair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(chunk) == CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def flattened(sentences: list[list[int]], tokenizer: Tokenizer) -> Sentences:
    """Sentences one after another, an EOS after each."""
    ids = itertools.chain.from_iterable(itertools.chain(sentence, (EOS_ID,)) for sentence in sentences)
    lengths = np.array([len(sentence) + 1 for sentence in sentences], np.int32)
    return Sentences(np.fromiter(ids, id_type(tokenizer), int(lengths.sum())), lengths)


def joined(sentences: Sequence[Sequence[int]]) -> Sentences:
    """Sentences that end with EOS already, one after another."""
    lengths = np.array([len(ids) for ids in sentences], np.int32)
    return Sentences(np.fromiter(itertools.chain.from_iterable(sentences), np.int32, int(lengths.sum())), lengths)
