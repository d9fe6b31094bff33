"""Shards that are tokenized apart are read as the store that one process writes."""

import numpy as np
import pytest

from transformer_jax.config import ConfigError, DataConfig, TokenizerConfig
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.data import token_store
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents
from transformer_jax.data.store_statistics import SideStatistics
from transformer_jax.data.stores import cached_split
from transformer_jax.data.tokenization import DocumentTokenization, PairTokenization, Shard
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizers


def pairs_with_several_segmentations():
    config = DataConfig(generated_pairs=61, bpe_dropout=0.1, segmentations=2)
    corpus = open_corpus(config, 0)
    tokenizers = train_tokenizers(TokenizerConfig(vocabulary_size=360), corpus, "train", 0)
    return PairTokenization(corpus, "train", tokenizers, config)


def documents():
    config = TextDataConfig(generated_sentences=200)
    return DocumentTokenization(open_documents(config, 0), "train", ByteTokenizer(), config)


@pytest.mark.parametrize("make", [pairs_with_several_segmentations, documents])
def test_shards_are_read_as_the_whole_store(make, tokenized, tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "BLOCK_BYTES", 64)
    work = make()
    whole, *others = cached_split(work, str(tmp_path), work.name), tokenized(work, 1), tokenized(work, 4)
    assert all(isinstance(array[:], np.memmap) for array in whole.arrays.values())
    for store in others:
        assert store.counts() == whole.counts() and store.statistics == whole.statistics
        for name, array in whole.arrays.items():
            positions = np.random.default_rng(0).integers(0, len(array), (5, 7))
            assert (store.arrays[name][:] == array[:]).all() and store.arrays[name].dtype == array.dtype
            assert (store.arrays[name][positions] == array[:][positions]).all()
            assert store.arrays[name][len(array) - 1] == array[len(array) - 1]
            assert (store.arrays[name][2:9:3] == array[2:9:3]).all() and not store.arrays[name][9:2].size


def test_unknown_tokens_of_shards_are_counted():
    numbers = {"sentences": 1, "bars": [1] + [0] * 11}
    parts = [
        {"tokens": tokens, "longest": tokens, "unknown": unknown} | numbers for tokens, unknown in ((3, 1), (49, 6))
    ]
    result = SideStatistics.of(parts)
    assert (result.tokens, result.mean_length, result.longest, result.unknown_share) == (52, 26.0, 49, 7 / 52)
    assert result.histogram["1-5"] == 2


def test_each_unit_is_in_one_shard():
    for total in (0, 5, 30, 400):
        bounds = [Shard(index, 6).bounds(total) for index in range(6)]
        assert [begin for begin, _ in bounds[1:]] == [end for _, end in bounds[:-1]]
        assert bounds[0][0] == 0 and bounds[-1][1] > 10**9, "numbers of units are estimates"
        assert np.ptp([end - begin for begin, end in bounds[:-1]]) <= 1


@pytest.mark.parametrize("text", ["3", "4/4", "-1/4", "a/b", "1/0"])
def test_a_shard_is_written_index_of_count(text):
    with pytest.raises(ConfigError, match="--shard: .* such as 3/64"):
        Shard.parse(text)
