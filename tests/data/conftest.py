"""A corpus that is a list, and token stores of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from transformer_jax.config import DataConfig
from transformer_jax.data.sentence_pairs import SentencePair, digest
from transformer_jax.data.stores import open_split, open_token_store, write_shard
from transformer_jax.data.token_store import SplitStore, TokenStore
from transformer_jax.data.tokenization import Shard, Tokenization
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import CharacterTokenizer

LETTERS = "abcdefgh "


class ListedCorpus:
    """Counts how often it is read."""

    source_language = "en"
    target_language = "de"

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = [SentencePair(*pair) for pair in pairs]
        self.times_read = 0

    def pairs(self, split: str) -> Iterator[SentencePair]:
        self.times_read += 1
        return iter(self._pairs)

    def count(self, split: str) -> int:
        return len(self._pairs)

    def fingerprint(self, split: str) -> str:
        return digest(text for pair in self._pairs for text in pair)


@pytest.fixture
def listed_corpus() -> Callable[[list[tuple[str, str]]], ListedCorpus]:
    return ListedCorpus


@pytest.fixture
def letter_tokenizers() -> TokenizerPair:
    """A token a letter: ``a`` is 4, ``b`` is 5, ..., the space 12."""
    letters = CharacterTokenizer(LETTERS)
    return TokenizerPair(letters, letters)


@pytest.fixture
def data_config(tmp_path: Path) -> Callable[..., DataConfig]:
    def make(**settings: object) -> DataConfig:
        return DataConfig(**{"source": "text", "directory": "-", "cache_directory": str(tmp_path)} | settings)

    return make


@pytest.fixture
def store_of(letter_tokenizers: TokenizerPair, data_config: Callable[..., DataConfig]) -> Callable[..., TokenStore]:
    """The store of a list of pairs of texts, or of lengths in tokens (EOS included)."""

    def make(
        pairs: list[tuple[str, str]] | list[tuple[int, int]], *, is_training: bool = False, **settings: object
    ) -> TokenStore:
        texts = [
            tuple(text if isinstance(text, str) else word(text - 1, row) for text in pair)
            for row, pair in enumerate(pairs)
        ]
        config = data_config(**settings)
        return open_token_store(ListedCorpus(texts), "train", letter_tokenizers, config, is_training=is_training)

    return make


@pytest.fixture
def tokenized(tmp_path: Path) -> Callable[[Tokenization, int], SplitStore]:
    """The store of ``count`` shards that are tokenized apart."""

    def opened(work: Tokenization, count: int) -> SplitStore:
        address = str(tmp_path / f"shards{count}")
        for index in range(count):
            write_shard(work, address, str(tmp_path / "cache"), Shard(index, count))
        return open_split(work, "", address)

    return opened


def word(length: int, shift: int) -> str:
    return "".join(LETTERS[(index + shift) % 8] for index in range(length))
