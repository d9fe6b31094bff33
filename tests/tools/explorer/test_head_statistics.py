"""Averages of heads, on weights that are written down."""

import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.evaluation.word_alignment import read_gold
from transformer_jax.tools.explorer import head_statistics
from transformer_jax.tools.explorer.head_statistics import head_error_rates


class Letters:
    """A tokenizer with a piece a letter, from id 4 on."""

    vocabulary_size = 10

    def pieces(self, ids):
        return ["<s>", "</s>", "?", "?", *"ab.-\u2581!"][: len(ids)]

    def surfaces(self, text):
        return [letter.encode() for letter in text]


def statistics_of(monkeypatch, weights, sides):
    """Of a language model whose weights [B, H, Q, M] are given, whatever it reads."""
    maps = {"decoder_layers_0/self_attention": jnp.asarray(weights, jnp.float32)}
    monkeypatch.setattr(head_statistics, "attention_maps", lambda model, params, *inputs: maps)
    (found,) = head_statistics.head_statistics(None, {}, [Letters()], [sides])
    assert found.source == f"averages over the first {len(sides)}"
    return {name: values.ravel().tolist() for name, values in found.values.items()}


def test_literal_averages(monkeypatch):
    weights = np.zeros((1, 2, 16, 16))
    # Read: <s> a . ; asked: a . </s>; the first head looks at <s>, the second half and half at <s> and its own place.
    weights[0, 0, :, 0] = 1.0
    weights[0, 1, np.arange(16), np.arange(16)] = 0.5
    weights[0, 1, :, 0] += 0.5
    found = statistics_of(monkeypatch, weights, [[4, 6, 2]])
    assert found["entropy"] == pytest.approx([0.0, 2 / 3])
    assert found["distance"] == pytest.approx([1.0, 0.5])
    assert found["same"] == pytest.approx([1 / 3, 2 / 3])
    assert found["previous"] == pytest.approx([1 / 3, 1 / 6])
    assert found["next"] == [0.0, 0.0]
    assert found["boundary"] == pytest.approx([1.0, 2 / 3])
    assert found["punctuation"] == pytest.approx([0.0, 1 / 6])


def test_padding_counts_for_nothing(monkeypatch):
    weights = np.full((2, 1, 16, 16), 1.0)
    alone = statistics_of(monkeypatch, weights[:1], [[4, 2]])
    twice = statistics_of(monkeypatch, weights, [[4, 2], [5, 2]])
    assert twice == alone
    assert alone["distance"] == [1.0]


def test_error_rates_of_heads():
    diagonal, turned = np.eye(3)[None], np.array([[[0, 1, 0], [1, 0, 0], [0, 0, 1.0]]])
    weights = [(0, np.stack([np.concatenate([diagonal, turned])]))]
    gold = read_gold(["0-0 1-1"], "gold")

    class Words:
        def surfaces(self, text):
            return [b"a", b" b"]

    tokenizers, pairs = TokenizerPair(Words(), Words()), [("a b", "a b")]
    assert head_error_rates(weights, tokenizers, pairs, gold, "gold").tolist() == [[0.0, 1.0]]
    with pytest.raises(DataError, match="links word 7"):
        head_error_rates(weights, tokenizers, pairs, read_gold(["7-0"], "gold"), "gold")
    with pytest.raises(DataError, match="gold: no pairs"):
        head_error_rates([], tokenizers, [], [], "gold")
