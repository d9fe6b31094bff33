"""Diverse beam search: the cost of repeated tokens, by hand and by its limits, which are plain beam searches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.array_types import EOS_ID
from transformer_jax.decoding import segmented_search
from transformer_jax.decoding.beam_search import Hypotheses, Rules, beam_search, search_next, search_until
from transformer_jax.decoding.diverse_search import DiverseRules, diverse_search
from transformer_jax.decoding.segmented_search import SearchBatch, SegmentedSearch

WIDTH, MOST = 4, 10


@pytest.fixture(scope="module")
def diverse(lookup_model):
    """Diverse search over tables, compiled once for each shape and rule."""

    @functools.partial(jax.jit, static_argnames="rules")
    def compiled(tables, limits, rules):
        cache = lookup_model.make_cache(tables, rules.search.beam_width, MOST)
        search = diverse_search(rules)
        advance = functools.partial(search_next, lookup_model.step, choose=search.choose)
        return search.results(search_until(advance, search.start(cache, limits, MOST), MOST))

    def run(tables, limits, groups, diversity, width=WIDTH, num_results=None, alpha=0.6) -> Hypotheses:
        rules = DiverseRules(Rules(width, num_results or width, alpha), groups, diversity)
        return jax.device_get(compiled(jnp.asarray(tables), jnp.asarray(limits, jnp.int32), rules))

    return run


@pytest.fixture(scope="module")
def plain(lookup_model):
    @functools.partial(jax.jit, static_argnames="width")
    def compiled(tables, limits, width):
        cache = lookup_model.make_cache(tables, width, MOST)
        return beam_search(
            lookup_model.step, cache, max_lengths=limits, max_length=MOST, beam_width=width, length_penalty=0.6
        )

    return lambda tables, limits, width: jax.device_get(compiled(jnp.asarray(tables), jnp.asarray(limits), width))


LIMITS = np.array([10, 9, 1, 0, 5, 10], np.int32)


@pytest.fixture(scope="module")
def tables(lookup_model):
    return lookup_model.random_tables(len(LIMITS), 9, seed=4, eos_bias=1.0)


def test_one_group_is_beam_search(diverse, plain, tables):
    for found, expected in zip(diverse(tables, LIMITS, 1, 0.7), plain(tables, LIMITS, WIDTH), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_groups_that_cost_nothing_find_the_same(diverse, plain, tables):
    for found, expected in zip(diverse(tables, LIMITS, 2, 0.0), plain(tables, LIMITS, WIDTH // 2), strict=True):
        np.testing.assert_array_equal(found, np.repeat(expected, 2, axis=1))


def test_a_tiny_vocabulary_by_hand(diverse, lookup_model):
    """Two greedy groups: the second pays 1 for each token that the first takes in the same place, and never for EOS."""
    logs = np.full((lookup_model.NUM_CONTEXTS, 6), -30.0, np.float32)
    logs[:, EOS_ID] = 0.0
    for prefix, probabilities in {
        (): {3: 0.5, 4: 0.3, 5: 0.2},  # costs log 0.5 - 1 = -1.69 after group 1: 4 is better, -1.20
        (3,): {3: 0.6, 4: 0.4},
        (4,): {3: 0.7, 4: 0.2, EOS_ID: 0.1},  # log 0.7 - 1 = -1.36 is still better than log 0.2 = -1.61
        (3, 3): {EOS_ID: 1.0},
        (4, 3): {EOS_ID: 1.0},
    }.items():
        row = logs[lookup_model.context_of(prefix)]
        row[:] = -30.0
        for token, probability in probabilities.items():
            row[token] = np.log(probability)
    found = diverse(logs[None], [4], 2, 1.0, width=2, alpha=0.0)
    assert found.ids[0, :, :4].tolist() == [[3, 3, EOS_ID, 0], [4, 3, EOS_ID, 0]]
    # The scores are those of the model, without what was paid.
    np.testing.assert_allclose(found.scores[0], np.log([0.5 * 0.6, 0.3 * 0.7]), atol=1e-5)


def test_what_a_prefix_paid_stays_with_it(diverse, lookup_model):
    """Token 3, taken by both groups, is worth less to the second in all that follows."""
    logs = np.full((lookup_model.NUM_CONTEXTS, 7), -30.0, np.float32)
    logs[lookup_model.context_of(()), 3:7] = np.log([0.5, 0.25, 0.15, 0.1])
    for first in (3, 4, 5, 6):
        logs[lookup_model.context_of((first,)), [3, 4]] = np.log([0.5, 0.5])
    found = diverse(logs[None], [3], 2, 1.5, width=4, alpha=0.0)
    texts = {tuple(ids[:2]) for ids in found.ids[0].tolist()}
    # Group 1 takes 3 and 4; group 2 then 5, log 0.15, and 3, log 0.5 - 1.5. Then 33 costs 1.5 once more: log 0.25 - 3 = -4.4
    # is less than log 0.15 + log 0.5 - 1.5 = -4.1.
    assert texts == {(3, 3), (3, 4), (5, 3), (5, 4)}


def test_fewer_results_are_the_first_of_more_and_all_are_the_models_own(diverse, lookup_model, tables):
    every, best = diverse(tables, LIMITS, 2, 1.0), diverse(tables, LIMITS, 2, 1.0, num_results=1)
    for all_of_them, one in zip(every, best, strict=True):
        np.testing.assert_array_equal(all_of_them[:, :1], one)
    for sentence, limit in enumerate(LIMITS):
        scores = every.scores[sentence][every.lengths[sentence] > 0]
        assert (np.diff(scores) <= 0).all() and (len(scores) > 1) == (limit > 0)
        for ids, length, score in zip(every.ids[sentence], every.lengths[sentence], scores, strict=False):
            assert lookup_model.is_close(score, lookup_model.scored(tables[sentence], ids[:length], 0.6).score)


def test_the_result_does_not_depend_on_the_batch_or_on_segments(diverse, lookup_model, tables, monkeypatch):
    for name, value in {"SEGMENT": 4, "FIRST_CAPACITY": 4}.items():
        monkeypatch.setattr(segmented_search, name, value)
    together = diverse(tables, LIMITS, 2, 1.0)
    order = np.array([4, 2, 0, 5, 3, 1])
    for shuffled, expected in zip(diverse(tables[order], LIMITS[order], 2, 1.0), together, strict=True):
        np.testing.assert_array_equal(shuffled, expected[order])
    search = SegmentedSearch(
        lambda params, inputs, capacity: lookup_model.make_cache(inputs, WIDTH, capacity),
        lambda params: lookup_model.step,
        diverse_search(DiverseRules(Rules(WIDTH, WIDTH, 0.6), 2, 1.0)),
    )
    batch = SearchBatch(np.arange(6), jnp.asarray(tables), LIMITS, MOST)
    seen = []
    for indices, found in search.search({}, [batch]):
        seen += indices.tolist()
        np.testing.assert_array_equal(found.ids, together.ids[indices, :, : found.ids.shape[2]])
        np.testing.assert_array_equal(found.scores, together.scores[indices])
    assert sorted(seen) == np.flatnonzero(LIMITS).tolist()


def test_groups_divide_the_beams(diverse, tables):
    with pytest.raises(ValueError, match="groups=3 must divide beam_width=4"):
        diverse(tables, LIMITS, 3, 1.0)
