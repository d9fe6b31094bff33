"""Sentence pairs as flat arrays of token ids, filtered and in order."""

import itertools
import operator
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataConfig
from transformer_jax.config.data import GENERATED_SOURCES
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.text_files import says_nothing
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.tokenizer_training import Example

# A chunk ends at either number.
CHUNK_PAIRS = 8192
CHUNK_CHARACTERS = 4_000_000
# Longer lines of training text are left out without tokenizing them.
MAX_LINE_BYTES = 1_000_000


class Sentences(NamedTuple):
    """Flat ``ids`` of sentences with an EOS after each, and ``lengths`` (int32, with EOS)."""

    ids: np.ndarray
    lengths: np.ndarray


class EncodedChunk(NamedTuple):
    """Result of encoding ``read`` consecutive pairs; ``dropped`` counts pairs by reason."""

    read: int
    dropped: Counter[str]
    source: Sentences
    target: Sentences


def training_filters(
    data: DataConfig, chunk: Sequence[SentencePair] = (), sides: Sequence[Sequence[Sequence[int]]] = ((), ())
) -> dict[str, np.ndarray]:
    """Return the filters of the training split by reason: True for pairs that are left out.

    Token limits do not count EOS, but the length ratio does: one token and no token have the ratio
    2.
    """

    def column_of(function: Callable[..., int], *columns: Iterable[Any], dtype: type = np.int64) -> np.ndarray:
        return np.fromiter(map(function, *columns), dtype, len(chunk))

    texts = list(zip(*chunk, strict=True)) if chunk else [(), ()]
    source, target = (column_of(len, side) for side in sides)
    characters = [column_of(len, side) for side in texts]
    is_long = np.maximum(*characters) * 4 > MAX_LINE_BYTES
    for index in np.flatnonzero(is_long).tolist():
        is_long[index] = any(map(is_overlong, chunk[index]))
    source_is_empty, target_is_empty = (column_of(says_nothing, side, dtype=bool) for side in texts)
    filters = {
        f"a line above {MAX_LINE_BYTES:,} bytes": is_long,
        "empty source": source_is_empty,
        "empty target": target_is_empty,
    }
    if data.source not in GENERATED_SOURCES:
        filters["target is the source"] = column_of(operator.eq, *texts, dtype=bool)
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
    """Return, by the index of a pair that is left out, the first filter that removes it."""
    reasons: dict[int, str] = {}
    for reason, applies in training_filters(data, chunk, sides).items():
        for index in np.flatnonzero(applies).tolist():
            reasons.setdefault(index, reason)
    return reasons


def filter_settings(data: DataConfig) -> list[int | float | bool | str]:
    """Return the settings that determine which pairs are kept, and how they are segmented."""
    may_be_identical = data.source in GENERATED_SOURCES
    limits = data.max_source_tokens, data.max_target_tokens, data.max_length_ratio
    dropout = (data.bpe_dropout, data.segmentations, "algorithm 1") if data.bpe_dropout else ()
    return [*limits, may_be_identical, MAX_LINE_BYTES, *dropout]


def is_overlong(text: str) -> bool:
    """Return whether a line has more than ``MAX_LINE_BYTES`` bytes of UTF-8."""
    return len(text) * 4 > MAX_LINE_BYTES and len(text.encode("utf-8", "surrogatepass")) > MAX_LINE_BYTES


def encoded_chunks(
    pairs: Iterator[SentencePair],
    tokenizers: TokenizerPair,
    filtering: DataConfig | None,
    number: int = 0,
    num_threads: int = -1,
) -> Iterator[EncodedChunk]:
    """Encode a stream of pairs in chunks, in order; memory holds a chunk.

    ``filtering`` None keeps all pairs, as for validation and test. ``number`` is that of the
    segmentation, of which ``data.bpe_dropout`` makes several. ``num_threads`` -1: all cores.
    """
    for chunk in chunks_of(pairs, lambda pair: len(pair.source) + len(pair.target)):
        sides = encoded_sides(chunk, tokenizers, filtering, number, num_threads)
        reasons = reasons_to_drop(filtering, chunk, sides) if filtering else {}
        if reasons:
            sides = [[ids for index, ids in enumerate(side) if index not in reasons] for side in sides]
        source_side, target_side = (flattened(*side) for side in zip(sides, tokenizers, strict=True))
        yield EncodedChunk(len(chunk), Counter(reasons.values()), source_side, target_side)


def encoded_sides(
    chunk: Sequence[SentencePair],
    tokenizers: TokenizerPair,
    filtering: DataConfig | None,
    number: int = 0,
    num_threads: int = -1,
) -> list[list[list[int]]]:
    sides = []
    dropout = filtering.bpe_dropout if filtering else 0.0
    for texts, tokenizer in zip(zip(*chunk, strict=True), tokenizers, strict=True):
        short: Sequence[str] = texts
        if filtering and max(map(len, texts)) * 4 > MAX_LINE_BYTES:
            short = ["" if is_overlong(text) else text for text in texts]
        if dropout:
            # A function of number and text: chunks do not matter.
            seeds = [zlib.crc32(f"{number} {text}".encode("utf-8", "surrogatepass")) for text in short]
            drawn = zip(short, seeds, strict=True)
            sides.append([tokenizer.encode_with_dropout(text, dropout, seed) for text, seed in drawn])
        else:
            sides.append(tokenizer.encode_batch(short, num_threads=num_threads))
    return sides


def chunks_of(examples: Iterable[Example], characters_of: Callable[[Example], int]) -> Iterator[list[Example]]:
    """Yield lists of at most ``CHUNK_PAIRS`` examples that end at ``CHUNK_CHARACTERS``."""
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


def id_type(vocabulary_size: int) -> np.dtype:
    """Return the smallest of uint16 and int32 that holds every id."""
    return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32)


def flattened(sentences: Sequence[Sequence[int]], tokenizer: Tokenizer) -> Sentences:
    """Concatenate sentences, with an EOS after each."""
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences)) + np.int32(1)
    ends = np.cumsum(lengths, dtype=np.int64)
    ids = np.full(ends[-1] if len(ends) else 0, EOS_ID, id_type(tokenizer.vocabulary_size))
    is_token = np.ones(len(ids), bool)
    is_token[ends - 1] = False
    ids[is_token] = np.fromiter(itertools.chain.from_iterable(sentences), ids.dtype, len(ids) - len(ends))
    return Sentences(ids, lengths)


def joined(sentences: Sequence[Sequence[int]]) -> Sentences:
    """Concatenate sentences that end with EOS."""
    lengths = np.array([len(ids) for ids in sentences], np.int32)
    return Sentences(np.fromiter(itertools.chain.from_iterable(sentences), np.int32, int(lengths.sum())), lengths)
