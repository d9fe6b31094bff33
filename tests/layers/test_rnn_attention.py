"""What every attention of the RNN models has in common, and what makes each of them different."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.layers.attention_scores import sharpened_softmax, smoothed_sigmoid
from transformer_jax.layers.rnn_attention import (
    AdditiveScore,
    ContentAttention,
    DotScore,
    GeneralScore,
    LocationBasedAttention,
    LocationSensitiveAttention,
    MonotonicWindow,
    PredictedWindow,
    WholeSource,
)

SIZE, ATTENTION = 4, 3
SCORES = {
    "dot": DotScore,
    "scaled_dot": partial(DotScore, is_scaled=True),
    "general": partial(GeneralScore, SIZE, SIZE),
    "additive": partial(AdditiveScore, SIZE, SIZE, ATTENTION),
    "normalized_additive": partial(AdditiveScore, SIZE, SIZE, ATTENTION, is_normalized=True),
}
SENSITIVE = partial(LocationSensitiveAttention, SIZE, SIZE, ATTENTION, num_filters=2, filter_taps=3)
ATTENTIONS = {
    **{name: partial(ContentAttention, score, WholeSource) for name, score in SCORES.items()},
    "location": partial(LocationBasedAttention, SIZE, 4),
    "local_m": partial(ContentAttention, SCORES["general"], partial(MonotonicWindow, 1)),
    "local_p": partial(ContentAttention, SCORES["general"], partial(PredictedWindow, 1, SIZE, ATTENTION)),
    "location_sensitive": SENSITIVE,
    "cumulative": partial(SENSITIVE, is_cumulative=True),
    "sharpened": partial(SENSITIVE, normalize=partial(sharpened_softmax, sharpness=2.0)),
    "smoothed": partial(SENSITIVE, normalize=smoothed_sigmoid),
}
BATCH, QUERIES, PLACES = 2, 3, 5
MASK = jnp.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
MEMORY = jax.random.normal(jax.random.key(0), (BATCH, PLACES, SIZE))
QUERY = jax.random.normal(jax.random.key(1), (BATCH, QUERIES, SIZE))
POSITIONS = jnp.broadcast_to(jnp.arange(QUERIES)[None], (BATCH, QUERIES))


@pytest.fixture(params=ATTENTIONS, scope="module")
def attention(request):
    module = ATTENTIONS[request.param]()

    def steps(module, query, memory, mask):
        """Two steps of all queries, each with its own state."""
        prepared = module.prepare(memory, mask)
        first = module(query, POSITIONS[:, : query.shape[1]], prepared, module.start(prepared, query.shape[1]))
        return first, module(query, POSITIONS[:, : query.shape[1]], prepared, first.state)

    variables = module.init(jax.random.key(2), QUERY, MEMORY, MASK, method=steps)
    return request.param, lambda *inputs: module.apply(variables, *inputs, method=steps)


def test_weights_sum_to_one_and_padding_has_none(attention):
    _, steps = attention
    for step in steps(QUERY, MEMORY, MASK):
        np.testing.assert_allclose(step.weights.sum(-1), 1, atol=1e-6)
        assert (step.weights[1, :, 3:] == 0).all()
        np.testing.assert_allclose(step.context, jnp.einsum("BQM,BME->BQE", step.weights, MEMORY), atol=1e-5)


def test_padding_of_the_memory_changes_nothing(attention):
    _, steps = attention
    whole, short = steps(QUERY, MEMORY, MASK), steps(QUERY, MEMORY[:, :3], MASK[:, :3])
    for one, other in zip(whole, short, strict=True):
        np.testing.assert_allclose(one.context[1], other.context[1], atol=1e-6)
        np.testing.assert_allclose(one.weights[1, :, :3], other.weights[1], atol=1e-6)


def test_queries_do_not_see_each_other(attention):
    _, steps = attention
    for one, other in zip(steps(QUERY, MEMORY, MASK), steps(QUERY[:, :1], MEMORY, MASK), strict=True):
        np.testing.assert_allclose(one.context[:, :1], other.context, atol=1e-6)


def test_only_the_location_sensitive_ones_remember(attention):
    name, steps = attention
    first, second = steps(QUERY, MEMORY, MASK)
    remembers = name in ("location_sensitive", "cumulative", "sharpened", "smoothed")
    assert np.allclose(first.weights, second.weights, atol=1e-6) is not remembers
    if remembers:
        expected = first.weights + second.weights if name == "cumulative" else second.weights
        np.testing.assert_allclose(second.state, expected, atol=1e-6)


def test_windows_are_kept(attention):
    name, steps = attention
    if name == "local_m":
        weights = steps(QUERY, MEMORY, MASK)[0].weights
        inside = np.abs(np.arange(PLACES)[None] - np.arange(QUERIES)[:, None]) <= 1
        np.testing.assert_array_equal(weights[0] > 0, inside)
    if name == "local_p":
        assert (np.asarray(steps(QUERY, MEMORY, MASK)[0].weights > 0).sum(-1) <= 3).all()
    if name == "location":
        assert (steps(QUERY, MEMORY, MASK)[0].weights[:, :, 4:] == 0).all()
