"""Sampling: which tokens may be drawn, how often, and that a row depends on nothing but itself."""

from functools import partial
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding import lookup_model

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.decoding import sampling, segmented_search
from transformer_jax.decoding.beam_search import Hypotheses, Rules, search_next, search_until
from transformer_jax.decoding.sampling import (
    SamplingRule,
    cache_with_keys,
    next_token_log_probs,
    row_keys,
    sampled_search,
    step_beside_keys,
)
from transformer_jax.decoding.segmented_search import SearchBatch, SegmentedSearch

VOCABULARY, LENGTH = 12, 6
PLAIN = SamplingRule()
LOGITS = jnp.asarray(np.random.default_rng(0).normal(0, 2, (50, VOCABULARY)), jnp.float32)


log_probs_of = jax.jit(next_token_log_probs, static_argnums=1)


def probabilities(rule, logits=LOGITS):
    return np.exp(np.asarray(log_probs_of(logits, rule), np.float64))


def choosable(logits):
    """Softmax over all but PAD and BOS."""
    exponentials = np.exp(np.asarray(logits, np.float64))
    exponentials[:, [PAD_ID, BOS_ID]] = 0
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_temperature_divides_the_logits_and_padding_is_never_drawn(temperature):
    np.testing.assert_allclose(probabilities(SamplingRule(temperature)), choosable(LOGITS / temperature), atol=1e-6)


@pytest.mark.parametrize("logits", [LOGITS, 0 * LOGITS, jnp.round(LOGITS)])
@pytest.mark.parametrize("k", [1, 3, VOCABULARY - 2])
def test_top_k_keeps_exactly_the_k_most_probable(logits, k):
    found, whole = probabilities(SamplingRule(top_k=k), logits), choosable(logits)
    assert ((found > 0).sum(-1) == k).all()
    kept = np.where(found > 0, whole, np.inf).min(-1)
    assert (np.where(found > 0, 0, whole).max(-1) <= kept + 1e-9).all()


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.999])
def test_top_p_keeps_the_smallest_set_of_that_mass(p):
    found, whole = probabilities(SamplingRule(top_p=p)), choosable(LOGITS)
    for kept, of_all in zip(found > 0, whole, strict=True):
        assert of_all[kept].sum() >= p - 1e-6
        assert of_all[kept].sum() - of_all[kept].min() < p + 1e-6
        assert of_all[kept].min() >= of_all[~kept].max()


def test_of_equal_tokens_top_p_keeps_the_lower_ids_and_within_top_k_the_mass_is_of_the_k():
    equal = np.array([[False, False, *(index < 5 for index in range(VOCABULARY - 2))]])
    np.testing.assert_array_equal(probabilities(SamplingRule(top_p=0.5), 0 * LOGITS)[:1] > 0, equal)
    found = probabilities(SamplingRule(top_k=4, top_p=0.6))
    for kept, of_all in zip(found > 0, choosable(LOGITS), strict=True):
        best = np.sort(of_all)[::-1][:4] / np.sort(of_all)[-4:].sum()
        assert kept.sum() == 1 + np.searchsorted(np.cumsum(best), 0.6)


def sample(step, cache, keys, limits, length, rule):
    """A sample for each row, by its key."""
    search = sampled_search(Rules(1, 1, 0.0), rule)
    state = search.start(cache_with_keys(cache, keys[:, None]), limits, length)
    advance = partial(search_next, step_beside_keys(step), choose=search.choose)
    return Hypotheses(*(leaf[:, 0] for leaf in search.results(search_until(advance, state, length))))


@pytest.fixture(scope="module")
def draw():
    """Samples of a table for each row."""

    @partial(jax.jit, static_argnames="rule")
    def compiled(tables, seed, row_ids, limits, rule):
        cache = lookup_model.make_cache(tables, 1, LENGTH)
        return sample(lookup_model.step, cache, row_keys(jax.random.key(seed), row_ids), limits, LENGTH, rule)

    def drawn(tables, seed=0, row_ids=None, limits=None, rule=PLAIN):
        rows = np.arange(len(tables)) if row_ids is None else np.asarray(row_ids)
        limits = np.full(len(tables), LENGTH) if limits is None else np.asarray(limits)
        return compiled(jnp.asarray(tables), seed, jnp.asarray(rows), jnp.asarray(limits), rule)

    return drawn


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.2, 0.99])
def test_epsilon_keeps_tokens_that_are_probable_enough_or_the_best(epsilon):
    found, whole = probabilities(SamplingRule(epsilon=epsilon)), choosable(LOGITS)
    kept = (whole >= epsilon) | (whole == whole.max(-1, keepdims=True))
    np.testing.assert_array_equal(found > 0, kept & (whole > 0))
    np.testing.assert_allclose(found, kept * whole / np.sum(kept * whole, -1, keepdims=True), rtol=1e-5)


def test_temperature_0_is_greedy_and_log_probs_are_those_of_the_model(draw):
    tables = lookup_model.random_tables(5, VOCABULARY, eos_bias=1.0)
    found = draw(tables, rule=SamplingRule(0.0))
    for table, ids, log_prob, length in zip(tables, found.ids, found.log_probs, found.lengths, strict=True):
        tokens = np.asarray(ids)[:length].tolist()
        for position, token in enumerate(tokens):
            logits = table[lookup_model.context_of(tokens[:position])].copy()
            logits[[PAD_ID, BOS_ID]] = -np.inf
            assert token == logits.argmax()
        assert tokens[-1] == EOS_ID or length == LENGTH
        assert EOS_ID not in tokens[:-1]
        assert not np.asarray(ids)[length:].any()
        assert lookup_model.is_close(log_prob, lookup_model.log_prob_of(table, tokens))


@pytest.mark.parametrize("size", [7, 64, 200])
def test_tokens_are_drawn_as_often_as_they_are_probable(size):
    logits = jnp.asarray(np.random.default_rng(0).normal(scale=2.0, size=size), jnp.float32).at[3].set(-jnp.inf)
    keys = row_keys(jax.random.key(0), jnp.arange(20_000))
    draw = jax.jit(sampling.draw, static_argnums=3)
    drawn, log_probs = draw(jnp.tile(logits, (len(keys), 1)), keys, jnp.int32(5), PLAIN)
    expected = choosable(logits[None])[0]
    shares = np.bincount(drawn, minlength=size) / len(keys)
    assert not shares[expected == 0].any()
    np.testing.assert_array_less(np.abs(shares - expected), 5 * np.sqrt(expected / len(keys)) + 1e-12)
    np.testing.assert_allclose(log_probs, jax.nn.log_softmax(logits)[drawn], rtol=1e-6)


def test_a_row_does_not_depend_on_the_batch_it_is_in(draw):
    tables = lookup_model.random_tables(6, VOCABULARY, scale=0.5)
    together = draw(tables)
    assert not np.array_equal(draw(tables, seed=1).ids, together.ids)
    for row in range(6):
        alone = draw(tables[row : row + 1], row_ids=[row])
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
    assert len({tuple(ids) for ids in np.asarray(together.ids)}) > 1


def test_the_tokens_of_a_row_are_drawn_independently(draw):
    rows = 2000
    logits = np.random.default_rng(2).normal(0, 1, VOCABULARY).astype(np.float32)
    logits[EOS_ID] = -20.0
    tables = np.broadcast_to(logits, (rows, lookup_model.NUM_CONTEXTS, VOCABULARY))
    found = draw(tables, limits=np.full(rows, 2))
    expected = (choosable(logits[None])[0] ** 2).sum()
    equal = (found.ids[:, 0] == found.ids[:, 1]).mean()
    assert abs(equal - expected) < 5 * np.sqrt(expected * (1 - expected) / rows)


SAMPLES, MOST, RULE = 3, 11, SamplingRule(1.2, 5)
KEY = jax.random.key(3)


def keys_of(numbers):
    return jax.vmap(row_keys, in_axes=(0, None))(row_keys(KEY, jnp.asarray(numbers)), jnp.arange(SAMPLES))


@pytest.mark.slow
def test_samples_in_segments_are_those_of_each_copy_alone(monkeypatch):
    for name, value in {"SEGMENT": 4, "FIRST_CAPACITY": 4, "MIN_ROWS": 1}.items():
        monkeypatch.setattr(segmented_search, name, value)
    tables = lookup_model.random_tables(4, 9, seed=1, eos_bias=-1.0)
    limits, numbers = np.array([11, 0, 3, 10], np.int32), np.array([7, 0, 2, 5])

    def init_cache(params, inputs, capacity):
        tables, numbers = inputs
        return cache_with_keys(lookup_model.make_cache(tables, SAMPLES, capacity), keys_of(numbers))

    rules = sampled_search(Rules(SAMPLES, SAMPLES, 0.6), RULE)
    search = SegmentedSearch(init_cache, lambda params: step_beside_keys(lookup_model.step), rules)
    batch = SearchBatch(np.arange(4), (jnp.asarray(tables), jnp.asarray(numbers)), limits, MOST)
    found = {}

    def report(indices, drawn):
        found.update({int(index): jax.tree.map(itemgetter(row), drawn) for row, index in enumerate(indices)})

    search.search({}, [batch], report)
    assert sorted(found) == [0, 2, 3] and {drawn.ids.shape[1] for drawn in found.values()} == {4, MOST}

    copies = lookup_model.make_cache(np.repeat(tables, SAMPLES, axis=0), 1, MOST)
    keys, of_copies = keys_of(numbers).reshape(-1), jnp.repeat(jnp.asarray(limits), SAMPLES)
    alone = jax.jit(sample, static_argnums=(0, 4, 5))(lookup_model.step, copies, keys, of_copies, MOST, RULE)
    for sentence, drawn in found.items():
        copies = slice(sentence * SAMPLES, (sentence + 1) * SAMPLES)
        np.testing.assert_array_equal(drawn.ids, alone.ids[copies, : drawn.ids.shape[1]])
        np.testing.assert_array_equal(drawn.lengths, alone.lengths[copies])
        np.testing.assert_allclose(drawn.log_probs, alone.log_probs[copies], rtol=1e-5)
        np.testing.assert_allclose(drawn.scores, drawn.log_probs / ((5 + drawn.lengths) / 6) ** 0.6, rtol=1e-5)
    assert len({tuple(ids) for drawn in found.values() for ids in drawn.ids}) > SAMPLES
