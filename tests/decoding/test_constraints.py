import jax
import jax.numpy as jnp
import numpy as np
from decoding import lookup_model

from transformer_jax.array_types import EOS_ID
from transformer_jax.decoding.beam_search import beam_search
from transformer_jax.decoding.constraints import Constraint, constrained


def test_a_constrained_search_is_exhaustive_search_over_what_is_allowed_with_the_probabilities_of_the_model():
    """Allowed: token 4 at most once, and no end before it."""
    tables, width = lookup_model.random_tables(3, 6, seed=2), 81
    tokens = jnp.arange(6)[None, None]

    def allowed(state):
        return ~((tokens == 4) & state[:, :, None]) & ~((tokens == EOS_ID) & ~state[:, :, None])

    constraint = Constraint(
        start=lambda inputs, beam_width: jnp.zeros((len(inputs), beam_width), bool),
        advance=lambda state, token_ids: state | (token_ids == 4),
        allowed=allowed,
    )
    init, make_step = constrained(
        lambda params, inputs, capacity: lookup_model.make_cache(params, width, capacity),
        lambda params: lookup_model.step,
        width,
        constraint,
    )
    limits = jnp.full((3,), 4, jnp.int32)

    @jax.jit
    def search(tables):
        options = {"max_lengths": limits, "max_length": 4, "beam_width": width, "length_penalty": 0.6}
        return beam_search(make_step(tables), init(tables, tables, 4), **options)

    found = search(tables)
    for sentence in range(3):
        every = lookup_model.exhaustive_search(tables[sentence], 4, 0.6)
        expected = [each for each in every if each.ids.count(4) == 1]
        assert 0 < len(expected) < len(every)
        for rank, each in enumerate(expected):
            assert tuple(found.ids[sentence, rank, : found.lengths[sentence, rank]].tolist()) == each.ids
            assert lookup_model.is_close(found.log_probs[sentence, rank], each.log_prob)
        assert (np.asarray(found.log_probs[sentence, len(expected) :]) == -np.inf).all()
