"""Filters of training pairs, and BPE-dropout as a function of number and text."""

import numpy as np

from transformer_jax.config import DataConfig, TokenizerConfig
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.pair_encoding import encoded_chunks
from transformer_jax.data.stores import open_token_store
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizers

MANY = "a b" * 400_000


def test_each_reason_is_counted(store_of):
    good, limits = ("abcde", "bcdefg"), {"max_source_tokens": 5, "max_target_tokens": 6, "max_length_ratio": 2.0}
    for pair, reason in (
        (("", "b"), "empty source"),
        (("\u200b\ufeff", "b"), "empty source"),
        (("a", "\u3000\u200e"), "empty target"),
        (("a", " "), "empty target"),
        (("ab", "ab"), "target is the source"),
        (("abcdef", "bcdef"), "source above 5 tokens"),
        (("abcde", "bcdefgh"), "target above 6 tokens"),
        (("abcde", "b"), "one side above 2 times the other"),
        ((MANY, "b"), "a line above 1,000,000 bytes"),
        (("b", MANY), "a line above 1,000,000 bytes"),
    ):
        store = store_of([good, pair, good], is_training=True, **limits)
        assert (store.statistics.read, store.statistics.kept, store.num_pairs) == (3, 2, 2)
        assert {name: count for name, count in store.statistics.dropped.items() if count} == {reason: 1}
        assert f"left out: 1 of 3, {reason}" in store.statistics.table()


def test_segmentations_differ_repeat_and_spell_the_same_text(tmp_path):
    settings = {"generated_pairs": 300, "max_length_ratio": 100.0, "cache_directory": str(tmp_path)}
    config = DataConfig(**settings, bpe_dropout=0.2, segmentations=3)
    corpus = open_corpus(config, 0)
    tokenizers = train_tokenizers(TokenizerConfig(vocabulary_size=450), corpus, "train", 0)
    plain, store = (open_token_store(corpus, "train", tokenizers, config, is_training=item) for item in (False, True))
    assert store.num_pairs == 3 * plain.num_pairs

    def ids(store, number):
        return store.source_side.sentences(np.array([number])).ids.tolist()

    pairs = list(corpus.pairs("train"))
    same = [ids(store, number) == ids(store, 300 + number) for number in range(300)]
    assert sum(same) < 150
    for number in range(0, 900, 7):
        assert tokenizers.source.decode(ids(store, number)) == pairs[number % 300].source
    # Other chunks, other processes: the same ids.
    (chunk,) = encoded_chunks(iter(pairs[100:103]), tokenizers, config, 1)
    assert chunk.source.ids.tolist() == [item for number in range(400, 403) for item in ids(store, number)]
