"""Filters of training pairs, and tokenizing on several processes."""

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.data import pair_encoding
from transformer_jax.data.pair_encoding import encoded_chunks
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.tokenizers.listed import CharacterTokenizer

MANY = "a b" * 400_000


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", "b"), "empty source"),
        (("a", " "), "empty target"),
        (("ab", "ab"), "target is the source"),
        (("abcdef", "bcdef"), "source above 5 tokens"),
        (("abcde", "bcdefgh"), "target above 6 tokens"),
        (("abcde", "b"), "one side above 2 times the other"),
        ((MANY, "b"), "a line above 1,000,000 bytes"),
        (("b", MANY), "a line above 1,000,000 bytes"),
    ],
)
def test_each_reason_is_counted(store_of, pair, reason):
    good = ("abcde", "bcdefg")
    store = store_of(
        [good, pair, good], is_training=True, max_source_tokens=5, max_target_tokens=6, max_length_ratio=2.0
    )
    assert store.statistics.read == 3
    assert store.statistics.kept == store.num_pairs == 2
    assert {name: count for name, count in store.statistics.dropped.items() if count} == {reason: 1}
    assert f"left out: 1 of 3, {reason}" in store.statistics.table()


def test_workers_encode_as_this_process_does(letter_tokenizers, data_config, monkeypatch):
    monkeypatch.setattr(pair_encoding, "CHUNK_PAIRS", 3)
    monkeypatch.setattr(pair_encoding, "MAX_WORKERS", 2)
    pairs = [SentencePair("abcdefgh"[: 1 + index % 8], "ab" * (index % 4)) for index in range(40)]
    config = data_config(max_source_tokens=6)

    def encode(chunks_without_workers):
        monkeypatch.setattr(pair_encoding, "CHUNKS_WITHOUT_WORKERS", chunks_without_workers)
        return list(encoded_chunks(iter(pairs), letter_tokenizers, config))

    here, there = encode(1000), encode(1)
    assert len(here) == 14
    for one, other in zip(here, there, strict=True):
        assert (one.read, one.dropped) == (other.read, other.dropped)
        for side, other_side in ((one.source, other.source), (one.target, other.target)):
            np.testing.assert_array_equal(side.ids, other_side.ids)
            np.testing.assert_array_equal(side.lengths, other_side.lengths)
            assert side.ids.dtype == other_side.ids.dtype


def test_a_worker_that_dies_is_an_error_and_not_a_wait(letter_tokenizers, monkeypatch):
    monkeypatch.setattr(pair_encoding, "CHUNKS_WITHOUT_WORKERS", 0)
    monkeypatch.setattr(pair_encoding, "MAX_WORKERS", 1)
    monkeypatch.setattr(CharacterTokenizer, "kind", "a kind that no worker knows")
    with pytest.raises(DataError, match="a worker process that tokenizes died"):
        list(encoded_chunks(iter([SentencePair("a", "b")]), letter_tokenizers, None))
