"""Shards that are tokenized apart and joined equal the store that one process writes."""

import numpy as np
import pytest

from transformer_jax.config import ConfigError, DataConfig, DataError, TextDataConfig, TokenizerConfig
from transformer_jax.data.cached_stores import Shard, build_shard
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents
from transformer_jax.data.token_store import (
    DocumentTokenization,
    PairTokenization,
    SideStatistics,
    open_document_store,
    open_token_store,
)
from transformer_jax.data.tokenizers import train_tokenizers
from transformer_jax.data.tokenizers.listed import ByteTokenizer


def arrays_of(folder):
    """The content of the only store in a folder."""
    (store,) = folder.iterdir()
    return {file.name: file.read_bytes() for file in store.iterdir()}


def test_pairs_with_several_segmentations(tmp_path):
    apart, whole = (
        DataConfig(generated_pairs=61, bpe_dropout=0.1, segmentations=2, cache_directory=str(tmp_path / name))
        for name in ("apart", "whole")
    )
    corpus = open_corpus(apart, 0)
    tokenizers = train_tokenizers(TokenizerConfig(vocabulary_size=360), corpus, "train", 0)
    work = PairTokenization(corpus, "train", tokenizers, apart)
    for index, missing in ((2, [0, 1, 3]), (0, [1, 3]), (3, [1])):
        assert build_shard(work, apart.cache_directory, Shard(index, 4)) == missing
    with pytest.raises(DataError, match=r"1 of 4 shards of the split .* --shard=1/4, or remove"):
        open_token_store(corpus, "train", tokenizers, apart, is_training=True)
    with pytest.raises(DataError, match="shards of another count"):
        build_shard(work, apart.cache_directory, Shard(1, 5))
    for _ in range(2):
        assert build_shard(work, apart.cache_directory, Shard(1, 4)) == []
    assert open_token_store(corpus, "train", tokenizers, whole, is_training=True).num_pairs
    assert arrays_of(tmp_path / "apart/token_stores") == arrays_of(tmp_path / "whole/token_stores")


def test_documents(tmp_path):
    config = TextDataConfig(generated_sentences=200, cache_directory=str(tmp_path / "whole"))
    source = open_documents(config, 0)
    work = DocumentTokenization(source, "train", ByteTokenizer(), config)
    for index in range(3):
        build_shard(work, str(tmp_path / "apart"), Shard(index, 3))
    store = open_document_store(source, "train", ByteTokenizer(), config)
    assert store.num_documents > 3
    assert arrays_of(tmp_path / "apart/document_stores") == arrays_of(tmp_path / "whole/document_stores")


def test_unknown_tokens_of_shards_are_counted():
    parts = [SideStatistics(tokens, 0.0, tokens, unknown / tokens, {"1-5": 1}) for tokens, unknown in ((3, 1), (49, 6))]
    assert SideStatistics.joined(parts, 2) == SideStatistics(52, 26.0, 49, 7 / 52, {"1-5": 2})


def test_each_example_is_in_one_shard():
    sizes = np.random.default_rng(0).integers(1, 9, 50).tolist()
    for total in (sum(sizes), 30, 400):
        shards = [list(Shard(index, 6).of(sizes, total, int)) for index in range(6)]
        assert [each for shard in shards for each in shard] == sizes
    for begun, total in ((0, 50), (0, 47), (20, 90), (70, 120)):
        for shard in (Shard(index, 6) for index in range(6)):
            skipped = shard.skipped(total, begun)
            own = list(shard.of(range(50), total, begun=begun))
            assert list(shard.of(range(skipped, 50), total, begun=begun + skipped)) == own
            assert not own or own[0] == skipped


@pytest.mark.parametrize("text", ["3", "4/4", "-1/4", "a/b", "1/0"])
def test_a_shard_is_written_index_of_count(text):
    with pytest.raises(ConfigError, match="--shard: .* such as 3/64"):
        Shard.parse(text)
