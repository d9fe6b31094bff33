"""Sampling in segments draws what sampling of each copy alone draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.decoding import segmented_search
from transformer_jax.decoding.beam_search import Rules
from transformer_jax.decoding.sampled_search import SAMPLED_SEARCH, SampledRules, cache_with_keys, step_beside_keys
from transformer_jax.decoding.sampling import SamplingRule, row_keys, sample
from transformer_jax.decoding.segmented_search import SearchBatch, SegmentedSearch

SAMPLES, MOST, RULE = 3, 11, SamplingRule(1.2, 5)
KEY = jax.random.key(3)


def test_samples_in_segments_are_those_of_each_copy_alone(lookup_model, monkeypatch):
    for name, value in {"SEGMENT": 4, "FIRST_ROOM": 4, "FEWEST_ROWS": 1}.items():
        monkeypatch.setattr(segmented_search, name, value)
    tables = lookup_model.random_tables(4, 9, seed=1, eos_bias=-1.0)
    limits, numbers = np.array([11, 0, 3, 10], np.int32), np.array([7, 0, 2, 5])

    def init_cache(params, inputs, room):
        tables, numbers = inputs
        copies = jnp.broadcast_to(jnp.arange(SAMPLES)[None], (len(numbers), SAMPLES))
        return cache_with_keys(lookup_model.make_cache(tables, SAMPLES, room), KEY, numbers, copies)

    rules = SampledRules(Rules(SAMPLES, SAMPLES, 0.6), RULE)
    search = SegmentedSearch(init_cache, lambda params: step_beside_keys(lookup_model.step), rules, kind=SAMPLED_SEARCH)
    batch = SearchBatch(np.arange(4), (jnp.asarray(tables), jnp.asarray(numbers)), limits, MOST)
    found = {
        int(name): jax.tree.map(lambda leaf, place=place: leaf[place], drawn)
        for names, drawn in search.search({}, [batch])
        for place, name in enumerate(names)
    }
    assert sorted(found) == [0, 2, 3] and {drawn.ids.shape[1] for drawn in found.values()} == {4, MOST}

    alone = sample(
        lookup_model.step,
        lookup_model.make_cache(np.repeat(tables, SAMPLES, axis=0), 1, MOST),
        keys=jax.vmap(row_keys, in_axes=(0, None))(row_keys(KEY, jnp.asarray(numbers)), jnp.arange(SAMPLES)).reshape(
            -1
        ),
        max_lengths=jnp.repeat(jnp.asarray(limits), SAMPLES),
        max_length=MOST,
        rule=RULE,
    )
    for sentence, drawn in found.items():
        copies = slice(sentence * SAMPLES, (sentence + 1) * SAMPLES)
        np.testing.assert_array_equal(drawn.ids, alone.ids[copies, : drawn.ids.shape[1]])
        np.testing.assert_array_equal(drawn.lengths, alone.lengths[copies])
        np.testing.assert_allclose(drawn.log_probs, alone.log_probs[copies], rtol=1e-5)
        np.testing.assert_allclose(drawn.scores, drawn.log_probs / ((5 + drawn.lengths) / 6) ** 0.6, rtol=1e-5)
    assert len({tuple(ids) for drawn in found.values() for ids in drawn.ids}) > SAMPLES


def test_samples_cannot_be_forced(lookup_model):
    cache = cache_with_keys(
        lookup_model.make_cache(lookup_model.random_tables(1, 6), 1, 4), KEY, jnp.zeros(1, int), jnp.zeros((1, 1), int)
    )
    with pytest.raises(ValueError, match="cannot be forced"):
        SAMPLED_SEARCH.start(cache, jnp.array([4]), 4, SampledRules(Rules(1, 1, 0.0), RULE), jnp.array([[3]]))
