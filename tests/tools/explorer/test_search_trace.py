"""A replayed search is the search; a forced one is its part that begins with the prefix."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding import lookup_model

from transformer_jax.decoding.beam_search import Rules, beam_search
from transformer_jax.tools.explorer.searches import DROPPED, FINISHED, KEPT, SearchTrace, build_tree

LIMIT, BEAMS, ALPHA = 5, 3, 0.6
RULES = Rules(BEAMS, BEAMS, ALPHA)


@pytest.fixture(scope="module")
def traced():
    """Table, tree and hypotheses of a traced search."""
    tables = lookup_model.random_tables(1, 7, seed=17, scale=2.0)
    trace = SearchTrace(
        lambda params, inputs, capacity: lookup_model.make_cache(inputs, BEAMS, capacity),
        lambda params: lookup_model.step,
        RULES,
        num_best=4,
    )
    steps, finished = trace({}, tables, LIMIT, capacity=LIMIT + 2)
    tree = build_tree(steps, lambda tokens: [*map(str, tokens)], BEAMS, ALPHA)
    return tables[0], tree, finished


def test_the_trace_ends_with_the_hypotheses_of_the_search(traced):
    table, tree, finished = traced
    options = {"max_lengths": jnp.array([LIMIT]), "max_length": LIMIT, "beam_width": BEAMS, "length_penalty": ALPHA}
    search = jax.jit(partial(beam_search, lookup_model.step, **options))
    expected = jax.device_get(search(lookup_model.make_cache(table[None], BEAMS, LIMIT)))
    np.testing.assert_array_equal(finished.ids[..., :LIMIT], expected.ids)
    best = tree.hypotheses()[:BEAMS]
    assert [tree.nodes[number].score for number in best] == pytest.approx(expected.scores[0].tolist(), rel=1e-5)
    for number, ids, length in zip(best, expected.ids[0], expected.lengths[0], strict=True):
        assert tuple(node.token for node in tree.path(number)) == tuple(ids[:length])


def test_every_node_has_the_log_probability_of_its_prefix(traced):
    table, tree, _ = traced
    for number, node in enumerate(tree.nodes):
        prefix = tuple(before.token for before in tree.path(number))
        assert node.log_prob == pytest.approx(lookup_model.log_prob_of(table, prefix), abs=1e-4)
        if node.parent >= 0:
            assert tree.nodes[node.parent].status == KEPT
    for position in range(LIMIT):
        at_position = [node for node in tree.nodes if node.position == position]
        kept = [node for node in at_position if node.status == KEPT]
        assert len(kept) == (BEAMS if position < LIMIT - 1 else 0)
        dropped = [node.log_prob for node in at_position if node.status == DROPPED]
        assert all(node.log_prob >= max(dropped, default=-np.inf) for node in kept)
    assert {node.status for node in tree.nodes} == {KEPT, DROPPED, FINISHED}
