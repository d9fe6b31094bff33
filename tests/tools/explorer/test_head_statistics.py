from functools import partial
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tools.explorer import head_statistics
from transformer_jax.tools.explorer.head_statistics import entropies, head_error_rates
from transformer_jax.tools.explorer.word_alignment import read_gold

PIECES = ["<s>", "</s>", "?", "?", *"ab.-\u2581!"]
LETTERS = SimpleNamespace(vocabulary_size=10, pieces=lambda ids: PIECES[: len(ids)])


def statistics_of(monkeypatch, weights, sides, source=""):
    """Of a language model whose weights [B, H, Q, M] are given, whatever it reads."""
    maps = {"decoder_layers_0/self_attention": jnp.asarray(weights, jnp.float32)}
    monkeypatch.setattr(head_statistics, "attention_maps", lambda model, params, *inputs: maps)
    sums_of = partial(head_statistics.sums_of_heads, None)
    (statistics,) = head_statistics.head_statistics(sums_of, {}, [LETTERS], [sides])
    assert statistics.source == (source or f"averages over the first {len(sides)}")
    return {name: values.ravel().tolist() for name, values in statistics.values.items()}


def test_literal_averages(monkeypatch):
    weights = np.zeros((1, 2, 16, 16))
    # Read: <s> a . ; asked: a . </s>; the first head looks at <s>, the second half and half at <s>
    # and its own place.
    weights[0, 0, :, 0] = 1.0
    weights[0, 1, np.arange(16), np.arange(16)] = 0.5
    weights[0, 1, :, 0] += 0.5
    expected = {
        **{"entropy": [0.0, 2 / 3], "distance": [1.0, 0.5], "same": [1 / 3, 2 / 3], "previous": [1 / 3, 1 / 6]},
        **{"next": [0.0, 0.0], "boundary": [1.0, 2 / 3], "punctuation": [0.0, 1 / 6]},
    }
    values = statistics_of(monkeypatch, weights, [[4, 6, 2]])
    assert {name: values[name] for name in expected} == {name: pytest.approx(value) for name, value in expected.items()}


def test_entropies_are_of_shares():
    weights = np.array([[1 / 16] * 8, [0.0] * 8, [2.0, 2.0, -1.0] + [0.0] * 5], np.float32)
    np.testing.assert_allclose(entropies(jnp.asarray(weights)), [3.0, 0.0, np.nan], atol=1e-6)


def test_heads_with_negative_weights_have_no_entropy_and_are_named(monkeypatch):
    weights = np.full((1, 2, 16, 16), 1 / 16)
    weights[0, 1, 2, 0] = -0.5
    source = "averages over the first 1; no entropy: negative weights in layer 1 head 2"
    values = statistics_of(monkeypatch, weights, [[4, 6, 2]], source)
    assert "entropy" not in values and values["boundary"][1] < 0


def test_error_rates_of_heads():
    diagonal, turned = np.eye(3)[None], np.array([[[0, 1, 0], [1, 0, 0], [0, 0, 1.0]]])
    weights = [(0, np.stack([np.concatenate([diagonal, turned])]))]
    words = SimpleNamespace(surfaces=lambda text: [b"a", b" b"] if text else [])
    tokenizers, pairs, gold = TokenizerPair(words, words), [("a b", "a b")], read_gold(["0-0 1-1"], "gold")
    assert head_error_rates(weights, tokenizers, pairs, gold, "gold").tolist() == [[0.0, 1.0]]
    with pytest.raises(DataError, match="links word 7"):
        head_error_rates(weights, tokenizers, pairs, read_gold(["7-0"], "gold"), "gold")
    with pytest.raises(DataError, match="gold: no pairs"):
        head_error_rates([], tokenizers, [], [], "gold")
