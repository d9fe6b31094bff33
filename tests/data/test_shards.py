"""Shards that are tokenized apart and joined equal the store that one process writes."""

import numpy as np
import pytest

from transformer_jax.config import ConfigError, DataConfig, TokenizerConfig
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.data.cached_stores import Shard
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents
from transformer_jax.data.token_store import DocumentTokenization, PairTokenization, SideStatistics
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.data.tokenizers.training import train_tokenizers


def pairs_with_several_segmentations():
    config = DataConfig(generated_pairs=61, bpe_dropout=0.1, segmentations=2)
    corpus = open_corpus(config, 0)
    tokenizers = train_tokenizers(TokenizerConfig(vocabulary_size=360), corpus, "train", 0)
    return PairTokenization(corpus, "train", tokenizers, config)


def documents():
    config = TextDataConfig(generated_sentences=200)
    return DocumentTokenization(open_documents(config, 0), "train", ByteTokenizer(), config)


@pytest.mark.parametrize("make", [pairs_with_several_segmentations, documents])
def test_joined_shards_are_the_whole_store(make, tokenized, tmp_path):
    work = make()
    for count in (1, 4):
        tokenized(work, count)
    whole, joined = ({file.name: file.read_bytes() for file in (tmp_path / f"joined{n}").iterdir()} for n in (1, 4))
    assert whole == joined


def test_unknown_tokens_of_shards_are_counted():
    parts = [SideStatistics(tokens, 0.0, tokens, unknown / tokens, {"1-5": 1}) for tokens, unknown in ((3, 1), (49, 6))]
    assert SideStatistics.joined(parts, 2) == SideStatistics(52, 26.0, 49, 7 / 52, {"1-5": 2})


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
