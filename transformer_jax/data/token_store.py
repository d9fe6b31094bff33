"""A corpus split, tokenized once and kept on disk as memory-mapped arrays."""

import hashlib
import json
import re
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.config import DataConfig, DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.cached_stores import memory_map, open_or_build
from transformer_jax.data.filters import filter_settings
from transformer_jax.data.sentence_pairs import Corpus
from transformer_jax.data.statistics import StoreStatistics
from transformer_jax.data.store_check import StoreCheck
from transformer_jax.data.token_store_builder import DESCRIPTION_FILE, SIDES, write_token_store
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.pair_encoding import Sentences

# Part of every key: raise it when the files, the filters or the order of pairs change their meaning.
FORMAT_VERSION = 2


class Side(NamedTuple):
    """Sentence ``i`` of one side is ``ids[offsets[i]:offsets[i + 1]]``, EOS included; both are memory-mapped."""

    ids: np.ndarray
    offsets: np.ndarray

    def sentence(self, index: int) -> np.ndarray:
        """Token ids of one sentence, int32."""
        return np.asarray(self.ids[self.offsets[index] : self.offsets[index + 1]], np.int32)

    def sentences(self, indices: np.ndarray) -> Sentences:
        """Token ids (int32) of some sentences, one after another, and their lengths; reads nothing else."""
        starts, lengths = self.offsets[indices], self.offsets[indices + 1] - self.offsets[indices]
        skipped = starts - (np.cumsum(lengths) - lengths)
        positions = np.repeat(skipped, lengths) + np.arange(int(lengths.sum()))
        return Sentences(np.asarray(self.ids[positions], np.int32), lengths.astype(np.int32))


class TokenStore:
    """Sentence pairs as token ids, EOS included; nothing is read into memory before it is asked for.

    Raises ValueError when ``directory`` does not hold a whole store.
    """

    def __init__(self, directory: Path) -> None:
        description = parse_json((directory / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        self.statistics = StoreStatistics.from_json(description["statistics"])
        self.num_pairs = self.statistics.kept
        tokens = {"source": self.statistics.source.tokens, "target": self.statistics.target.tokens}
        self.source_side, self.target_side = (
            Side(
                memory_map(directory / f"{side}.ids", description["id_types"][side], tokens[side]),
                memory_map(directory / f"{side}.offsets", "int64", self.num_pairs + 1),
            )
            for side in SIDES
        )
        self.check = StoreCheck(directory)

    @cached_property
    def source_lengths(self) -> np.ndarray:
        """Tokens of each source sentence, int32 ``[num_pairs]``."""
        return np.diff(self.source_side.offsets).astype(np.int32)

    @cached_property
    def target_lengths(self) -> np.ndarray:
        """Tokens of each target sentence, int32 ``[num_pairs]``."""
        return np.diff(self.target_side.offsets).astype(np.int32)

    def source(self, index: int) -> np.ndarray:
        """Token ids of a source sentence, int32, ending with EOS."""
        return self.source_side.sentence(index)

    def target(self, index: int) -> np.ndarray:
        """Token ids of a target sentence, int32, ending with EOS."""
        return self.target_side.sentence(index)


def open_token_store(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, *, is_training: bool
) -> TokenStore:
    """The store of a split: from the cache if the same content was tokenized the same way before, else built now.

    Filters apply only with ``is_training``. A damaged store in the cache is built again. Raises DataError when no pair is
    left, saying what the filters dropped, and when the cache cannot be written.
    """
    write = partial(write_token_store, corpus, split, tokenizers, config if is_training else None)
    name = _name(corpus, split, tokenizers, config, is_training)
    store = open_or_build(config.cache_directory, name, TokenStore, write)
    if store.num_pairs == 0:
        dropped = {reason: count for reason, count in store.statistics.dropped.items() if count}
        why = "; ".join(f"{count:,} of {store.statistics.read:,}: {reason}" for reason, count in dropped.items())
        remedy = f"left out were {why}; look at the text, or raise data.max_*_tokens" if why else "the split is empty"
        raise DataError(f"data: no pair of the split {split!r} is left: {remedy}")
    return store


def _name(corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, is_training: bool) -> str:
    """The folder in the cache whose name says what is in it: corpus, tokenizers and whatever decides which pairs are kept."""
    identity = {
        "format": FORMAT_VERSION,
        "split": split,
        "corpus": corpus.fingerprint(split),
        "languages": [corpus.source_language, corpus.target_language],
        "tokenizers": [tokenizer.fingerprint() for tokenizer in tokenizers],
        "filters": filter_settings(config) if is_training else None,
    }
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    readable = re.sub(r"[^\w.-]+", "_", split)[:40]
    return f"token_stores/{readable}-{key}"
