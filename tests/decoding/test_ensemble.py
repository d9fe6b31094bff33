"""Search with several models as one, next to the search of each alone."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding import lookup_model

from transformer_jax.decoding.beam_search import beam_search
from transformer_jax.models.ensemble import Ensemble
from transformer_jax.models.interface import call

LIMITS = [7, 6, 7, 3]


@pytest.fixture(scope="module")
def found_together():
    """What beam search finds with an ensemble of tables."""

    class Table(nn.Module):
        def init_cache(self, memory, *, beam_width, max_length):
            return lookup_model.make_cache(memory, beam_width, max_length)

        def decode_step(self, token_ids, cache):
            return lookup_model.step(token_ids, cache)

    def search(*tables):
        model = Ensemble(tuple(Table() for _ in tables))
        cache = call(model, {}, "init_cache", tables, beam_width=3, max_length=7)
        sizes = {"max_lengths": jnp.array(LIMITS), "max_length": 7, "beam_width": 3}

        def step(ids, cache):
            return call(model, {}, "decode_step", ids, cache)

        return jax.device_get(jax.jit(partial(beam_search, step, length_penalty=0.6, **sizes))(cache))

    return search


def test_search_with_two_tables_is_search_with_the_mean_of_their_probabilities(found_together):
    tables = [lookup_model.random_tables(4, 8, seed=seed) for seed in (1, 2)]
    found = found_together(*tables)
    mean = np.log(np.mean([jax.nn.softmax(table) for table in tables], axis=0))
    alone = []
    for sentence, limit in enumerate(LIMITS):
        expected = lookup_model.plain_beam_search(mean[sentence], limit, 0.6, 3)
        for rank, hypothesis in enumerate(expected):
            assert tuple(found.ids[sentence, rank, : found.lengths[sentence, rank]]) == hypothesis.ids
            assert lookup_model.is_close(found.scores[sentence, rank], hypothesis.score)
        alone += [lookup_model.plain_beam_search(table[sentence], limit, 0.6, 3)[0].ids for table in tables]
        alone[-2:] = [ids == expected[0].ids for ids in alone[-2:]]
    assert not all(alone)
