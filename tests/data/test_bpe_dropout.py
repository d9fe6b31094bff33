"""BPE-dropout: a segmentation is a function of its number and the text, and only the training split has it."""

import numpy as np
import pytest

from transformer_jax.config import ConfigError, DataConfig, TokenizerConfig, from_dict
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.pair_encoding import encoded_chunks
from transformer_jax.data.token_store import open_token_store
from transformer_jax.data.tokenizers.kinds import train_tokenizers


def test_segmentations_differ_repeat_and_spell_the_same_text(tmp_path):
    config = DataConfig(
        generated_pairs=300, bpe_dropout=0.2, segmentations=3, cache_directory=str(tmp_path), max_length_ratio=100.0
    )
    corpus = open_corpus(config, 0)
    tokenizers = train_tokenizers(TokenizerConfig(vocabulary_size=450), corpus, "train", 0)
    plain = open_token_store(corpus, "train", tokenizers, config, is_training=False)
    store = open_token_store(corpus, "train", tokenizers, config, is_training=True)
    assert store.num_pairs == 3 * plain.num_pairs

    def ids(store, number):
        return store.source_side.sentences(np.array([number])).ids.tolist()

    texts = [pair.source for pair in corpus.pairs("train")]
    same = [ids(store, number) == ids(store, 300 + number) for number in range(300)]
    assert sum(same) < 150
    for number in range(0, 900, 7):
        assert tokenizers.source.decode(ids(store, number)) == texts[number % 300]
    # Other chunks, other processes: the same ids.
    pairs = list(corpus.pairs("train"))[100:103]
    (chunk,) = encoded_chunks(iter(pairs), tokenizers, config, 1)
    expected = [each for number in range(400, 403) for each in ids(store, number)]
    assert chunk.source.ids.tolist() == expected


def test_only_bpe_has_merges():
    with pytest.raises(ConfigError, match=r"data\.bpe_dropout: .* use tokenizer\.kind=bpe"):
        from_dict({"data": {"bpe_dropout": 0.1}, "tokenizer": {"kind": "unigram"}})
