"""Embedding tables that start from word vectors: the right rows, the right scale, the rest as in
any new run."""

import jax
import numpy as np
import pytest
from libraries import library
from run_settings import tiny_settings
from run_steps import initial_state

from transformer_jax.config import ConfigError, InitConfig, from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import WordTokenizer
from transformer_jax.runs.initial_embeddings import find_initial_embeddings, row_of_each_piece
from transformer_jax.tools.word_vectors.keyed_vectors import keyed_vectors, write_vectors
from transformer_jax.training.parameters import named_leaves

library("gensim", "vectors")


def table(*words, dimension=16):
    return keyed_vectors(words, np.random.default_rng(0).normal(0, 7, (len(words), dimension)).astype(np.float32))


def test_pieces_that_begin_a_word_find_it_and_those_within_do_not():
    def rows(*words):
        return {word: row for row, word in enumerate(words)}

    words = rows("the", "ing", ",", "Berlin", "berlin")
    pieces = ["▁the", "▁The", "ing", "▁ing", ",", "▁Berlin", "▁BERLIN", "▁", "▁x"]
    assert row_of_each_piece(pieces, words) == [0, 0, None, 1, 2, 3, 4, None, None]
    assert row_of_each_piece([" the", ",", " The", " x"], words) == [0, 2, 0, None]
    assert row_of_each_piece(["the", "ing"], words) == [0, 1]
    assert row_of_each_piece(["▁the", "ing", "the"], rows("▁the", "ing")) == [0, 1, None]
    # One entry with a mark, as in vectors of web text, does not make a table of pieces.
    assert row_of_each_piece(["▁dog", "▁in", "in", "ing"], rows("dog", "in", "ing", "▁▂▃")) == [0, 1, None, None]


@pytest.mark.slow
def test_rows_found_replace_those_drawn_at_their_scale(cache, tmp_path):
    vectors = table("a", "b", "d", "nothing")
    file = str(write_vectors(tmp_path / "v.txt", vectors))
    settings = tiny_settings(cache) | {"init": {"embeddings": file}}
    settings["model"] |= {"tying": "none"}
    config = from_dict(settings | {"mesh": {"data": 2, "fsdp": 2, "tensor": 2}})
    state, source, task, update = initial_state(config, tmp_path / "run", 8)
    drawn = named_leaves(jax.device_get(update.initial_state(config.seed).params))
    tokenizer, note = task.tokenizers.source, source.report()
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == jax.tree.map(lambda s: s.sharding, update.state_shapes)
    pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
    ids = [pieces.index(f" {letter}") for letter in "abd"]
    changed = {name for name, leaf in named_leaves(state.params).items() if not np.array_equal(leaf, drawn[name])}
    assert changed == {"source_embedding/table", "target_embedding/table"}
    for name in changed:
        now, before = np.asarray(named_leaves(state.params)[name]), drawn[name]
        scale = np.sqrt((before[ids] ** 2).mean() / (vectors.vectors[:3] ** 2).mean())
        np.testing.assert_allclose(now[ids], vectors.vectors[:3] * scale, rtol=1e-5)
        others = np.delete(np.arange(len(now)), ids)
        np.testing.assert_array_equal(now[others], before[others])
        assert f"{name}: 3 of {len(pieces) - 4} pieces found, {len(pieces) - 7} missing" in note


def test_each_side_has_the_pieces_of_its_own_tokenizer(tmp_path):
    file = str(write_vectors(tmp_path / "v.bin", table("dog", "Hund", "ein")))
    tokenizers = TokenizerPair(WordTokenizer([" a", " dog"]), WordTokenizer([" ein", " Hund", " x"]))
    shapes = {name: {"table": np.zeros((9, 16))} for name in ("source_embedding", "target_embedding", "projection")}
    # As of an output layer with a bias.
    shapes["projection"] |= {"embedding": {"table": np.zeros((9, 16))}}
    found = find_initial_embeddings(file, shapes, tokenizers).tables
    assert {name: rows.ids.tolist() for name, rows in found.items()} == {
        "source_embedding/table": [5],
        "target_embedding/table": [4, 5],
    }


def test_vectors_that_do_not_fit_are_refused(cache, tmp_path):
    cases = [
        (table("a", dimension=8), "has vectors of dimension 8, .*table of 16; make them the same"),
        (table("wug", "dax"), "has none of the pieces of this model; it has 'wug', 'dax'"),
    ]
    for vectors, message in cases:
        file = str(write_vectors(tmp_path / "v.bin", vectors))
        config = from_dict(tiny_settings(cache) | {"init": {"embeddings": file}})
        with pytest.raises(ConfigError, match=f"init.embeddings: .*{message}"):
            initial_state(config, tmp_path / "run")
    with pytest.raises(ConfigError, match="init.embeddings: the parameters, with the embeddings, come from init.run"):
        InitConfig(run="runs/a", embeddings="v.txt")
