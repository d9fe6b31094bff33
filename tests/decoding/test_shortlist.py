"""Search among candidates is search with everything else impossible, however many columns there are."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import ConfigError, DataError, RnnConfig
from transformer_jax.decoding import beam_search
from transformer_jax.decoding.shortlist import (
    Shortlist,
    as_rows,
    cache_among,
    columns_for,
    load_shortlist,
    save_shortlist,
    step_among,
)
from transformer_jax.layers.embedding import BiasedProjection, Embedding
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import call, init_params
from transformer_jax.tasks.translation.translator import init_cache

SHORTLIST = Shortlist(
    np.array([[0, 0], [0, 0], [0, 0], [3, 0], [8, 4], [4, 5], [7, 9]], np.int32), np.array([11], np.int32), ("a", "b")
)


def test_candidates_are_those_of_the_tokens_and_the_frequent():
    assert SHORTLIST.candidates([4, 5, EOS_ID]).tolist() == [PAD_ID, BOS_ID, EOS_ID, 4, 5, 8, 11]
    assert SHORTLIST.candidates([EOS_ID], [6, 11]).tolist() == [PAD_ID, BOS_ID, EOS_ID, 6, 11]
    rows = as_rows([SHORTLIST.candidates([EOS_ID])], 2, 6)
    assert rows.tolist() == [[0, 1, 2, 11, 0, 0], [0, 1, 2, 0, 0, 0]]
    assert columns_for([np.arange(5), np.arange(40)]) == 64


def test_a_search_among_candidates_is_one_where_nothing_else_is_possible(lookup_model):
    tables = lookup_model.random_tables(3, 12, seed=2)
    candidates = [SHORTLIST.candidates(source) for source in ([4, 5, 2], [6, 2], [4, 5, 6, 2])]
    options = {"max_lengths": jnp.array([7, 6, 7]), "max_length": 7, "beam_width": 3, "length_penalty": 0.6}

    impossible = np.full_like(tables, -np.inf)
    for table, only, own in zip(tables, impossible, candidates, strict=True):
        only[:, own[EOS_ID:]] = table[:, own[EOS_ID:]]
    plain = jax.jit(functools.partial(beam_search, lookup_model.step, **options))
    expected = plain(lookup_model.make_cache(impossible, 3, 7))

    def step(token_ids, cache, output):
        logits, after = lookup_model.step(token_ids, cache)
        return jnp.take_along_axis(logits, output[:, :1].astype(int), axis=2), after

    @jax.jit
    def among(rows):
        cache = cache_among(lookup_model.make_cache(tables, 3, 7), rows, rows[:, None].astype(jnp.float32))
        return beam_search(step_among(step), cache, **options)

    found = among(jnp.asarray(as_rows(candidates, 3, 64)))
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    for ids, own, of_plain in zip(np.asarray(found.ids), candidates, expected.ids, strict=True):
        np.testing.assert_array_equal(own[ids], of_plain)
    assert (np.asarray(expected.lengths) > 1).any()


def test_logits_among_tokens_are_theirs_among_all():
    model = build_model(RnnConfig(d_embedding=8, d_hidden=8, d_attention=8), 17, 17)
    candidates, ids = jnp.array([[2, 9, 16], [2, 4, 0]]), jnp.array([[1, 5], [6, 7]])

    @jax.jit
    def both_logits(key):
        params = init_params(model, key)
        cache = init_cache(model, 2, params, jnp.array([[5, 6, 2], [7, 2, 0]], jnp.int32), 4)
        columns = call(model, params, "output_columns", candidates)
        logits, _ = call(model, params, "decode_step", ids, cache)
        return logits, call(model, params, "decode_step", ids, cache, columns)[0]

    logits, among = both_logits(jax.random.key(0))
    np.testing.assert_allclose(among, jnp.take_along_axis(logits, candidates[:, None], axis=2), rtol=1e-5, atol=1e-6)


def test_biases_are_added_to_the_logits_of_their_tokens():
    projection = BiasedProjection(Embedding(5, 3))
    hidden, ids = jnp.array([[[1.0, 2.0, -1.0]]]), jnp.array([[4, 2]])
    params = projection.init(jax.random.key(0), hidden, method="logits")["params"] | {"logits_bias": jnp.arange(5.0)}
    every = call(projection, params, "logits", hidden)
    among = call(projection, params, "logits_among", hidden, call(projection, params, "columns", ids))
    np.testing.assert_allclose(among, every[:, :, np.array([4, 2])], rtol=1e-5)


def test_a_file_serves_its_tokenizers_alone_and_damage_is_named(tmp_path):
    path = tmp_path / "short.npz"
    save_shortlist(path, SHORTLIST)
    load = functools.partial(load_shortlist, str(path), num_sources=7, num_targets=12)
    for found, expected in zip(load(("a", "b")), SHORTLIST, strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ConfigError, match=r"short\.npz was made for other tokenizers"):
        load(("a", "c"))
    with pytest.raises(DataError, match="damaged"):
        load(("a", "b"), num_targets=11)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"short\.npz: not a file that"):
        load(("a", "b"))
    with pytest.raises(DataError, match="No such file"):
        load_shortlist(f"{path}x", ("a", "b"), 7, 12)
