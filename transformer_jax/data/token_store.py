"""A corpus split, tokenised once and kept on disk as memory-mapped arrays."""

import hashlib
import json
from pathlib import Path

import numpy as np

from transformer_jax.config import DataConfig, DataError
from transformer_jax.data.filters import GENERATED
from transformer_jax.data.sentence_pairs import Corpus
from transformer_jax.data.statistics import StoreStatistics
from transformer_jax.data.token_store_builder import build_token_store
from transformer_jax.data.tokenizers import TokenizerPair

# Part of every key: raise it when the files or the filters change their meaning.
FORMAT_VERSION = 1


class TokenStore:
    """Sentence pairs as token ids, EOS included; nothing is read into memory before it is asked for."""

    def __init__(self, directory: Path) -> None:
        self._sides = {
            side: (
                np.load(directory / f"{side}_ids.npy", mmap_mode="r"),
                np.load(directory / f"{side}_offsets.npy", mmap_mode="r"),
            )
            for side in ("source", "target")
        }
        self.statistics = StoreStatistics(**json.loads((directory / "statistics.json").read_text(encoding="utf-8")))
        self.num_pairs = self.statistics.kept
        self.source_lengths = np.diff(self._sides["source"][1])
        self.target_lengths = np.diff(self._sides["target"][1])

    def source(self, index: int) -> np.ndarray:
        """Token ids of a source sentence, int32, ending with EOS."""
        return self._sentence("source", index)

    def target(self, index: int) -> np.ndarray:
        """Token ids of a target sentence, int32, ending with EOS."""
        return self._sentence("target", index)

    def _sentence(self, side: str, index: int) -> np.ndarray:
        ids, offsets = self._sides[side]
        return ids[offsets[index] : offsets[index + 1]].astype(np.int32)


def open_token_store(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, *, is_training: bool
) -> TokenStore:
    """The store of a split: from the cache if the same content was tokenised the same way before, else built now.

    Filters apply only with ``is_training``. Raises DataError when no pair is left.
    """
    directory = _directory(corpus, split, tokenizers, config, is_training)
    if not (directory / "statistics.json").is_file():
        build_token_store(corpus, split, tokenizers, config, directory, is_training=is_training)
    store = TokenStore(directory)
    if store.num_pairs == 0:
        raise DataError(f"data: no pair of the split {split!r} is left.\n{store.statistics.table()}")
    return store


def _directory(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, is_training: bool
) -> Path:
    """The folder whose name says what is in it: corpus, tokenizers and whatever decides which pairs are kept."""
    identity = {
        "format": FORMAT_VERSION,
        "corpus": corpus.fingerprint(split),
        "languages": [corpus.source_language, corpus.target_language],
        "tokenizers": [tokenizer.fingerprint() for tokenizer in tokenizers],
        "filters": None,
    }
    if is_training:
        limits = config.max_source_tokens, config.max_target_tokens, config.max_length_ratio
        identity["filters"] = [*limits, config.source in GENERATED]
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    return Path(config.cache_directory).expanduser() / "token_stores" / f"{split}-{key}".replace("/", "_")
