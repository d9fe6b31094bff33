"""Every attention of the RNN models against its equation, and properties of all."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.config import RnnConfig
from transformer_jax.layers import rnn_attention as layers
from transformer_jax.layers.rnn_attention import ContentAttention, DotScore, GeneralScore, WholeSource
from transformer_jax.layers.site import Site
from transformer_jax.precision import POLICIES
from transformer_jax.registry.index import own_parts
from transformer_jax.registry.plugins import registered

SIZE, WIDTH = 4, 3
ADDITIVE = partial(layers.AdditiveScore, SIZE, SIZE, WIDTH)
SCORES = {
    "dot": DotScore,
    "scaled_dot": partial(DotScore, is_scaled=True),
    "general": partial(GeneralScore, SIZE, SIZE),
    "additive": ADDITIVE,
    "normalized_additive": partial(ADDITIVE, is_normalized=True),
}
SENSITIVE = partial(layers.LocationSensitiveAttention, SIZE, SIZE, WIDTH, num_filters=2, filter_taps=3)
ATTENTIONS = {
    **{name: partial(ContentAttention, score, WholeSource) for name, score in SCORES.items()},
    "location": partial(layers.LocationBasedAttention, SIZE, 4),
    "local_m": partial(ContentAttention, DotScore, partial(layers.MonotonicWindow, 1)),
    "local_p": partial(ContentAttention, DotScore, partial(layers.PredictedWindow, 1, SIZE, WIDTH)),
    "location_sensitive": SENSITIVE,
    "cumulative": partial(SENSITIVE, is_cumulative=True),
    "sharpened": partial(SENSITIVE, normalize=partial(layers.sharpened_softmax, sharpness=2.0)),
    "smoothed": partial(SENSITIVE, normalize=layers.smoothed_sigmoid),
}
BATCH, QUERIES, LENGTH = 2, 3, 5
MASK = jnp.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
RANDOM = np.random.default_rng(0)
MEMORY = jnp.asarray(RANDOM.normal(size=(BATCH, LENGTH, SIZE)), jnp.float32)
QUERY = jnp.asarray(RANDOM.normal(size=(BATCH, QUERIES, SIZE)), jnp.float32)
POSITIONS = jnp.broadcast_to(jnp.arange(QUERIES)[None], (BATCH, QUERIES))

NAMES = [name for (kind, name), part in own_parts().items() if kind == "rnn_attention" and part.owner.is_core]


def two_steps(module, query, memory, mask):
    prepared = module.prepare(memory, mask)
    first = module(query, POSITIONS[:, : query.shape[1]], prepared, module.start(prepared, query.shape[1]))
    return first, module(query, POSITIONS[:, : query.shape[1]], prepared, first.state)


@cache
def initialized(name):
    """The parameters of an attention, and a function that runs two steps of all queries."""
    module = ATTENTIONS[name]()
    variables = random_params(partial(module.init, method=two_steps), jax.random.key(2), QUERY, MEMORY, MASK)
    return variables.get("params", {}), jax.jit(lambda *inputs: module.apply(variables, *inputs, method=two_steps))


@pytest.mark.parametrize("name", ATTENTIONS)
def test_weights_sum_to_one_and_neither_padding_nor_other_queries_change_anything(name):
    steps = initialized(name)[1]
    actual = steps(QUERY, MEMORY, MASK)
    # Other padding in the second row, and other queries than the first.
    others = steps(QUERY, MEMORY.at[1, 3:].add(9.0), MASK), steps(QUERY.at[:, 1:].add(1.0), MEMORY, MASK)
    for whole, other_padding, one in zip(actual, *others, strict=True):
        np.testing.assert_allclose(whole.weights.sum(-1), 1, atol=1e-6)
        np.testing.assert_allclose(whole.context, np.einsum("BQM,BME->BQE", whole.weights, MEMORY), atol=1e-5)
        assert (whole.weights[1, :, 3:] == 0).all()
        np.testing.assert_allclose(whole.weights, other_padding.weights, atol=1e-6)
        np.testing.assert_allclose(whole.context[:, :1], one.context[:, :1], atol=1e-6)
    first, second = actual
    remembers = name in ("location_sensitive", "cumulative", "sharpened", "smoothed")
    assert np.allclose(first.weights, second.weights, atol=1e-6) is not remembers
    if remembers:
        expected = first.weights + second.weights if name == "cumulative" else second.weights
        np.testing.assert_allclose(second.state, expected, atol=1e-6)


EQUATIONS = {
    "dot": lambda q, h, p: q @ h,
    "scaled_dot": lambda q, h, p: q @ h / np.sqrt(SIZE),
    "general": lambda q, h, p: q @ p["kernel"] @ h,
    "additive": lambda q, h, p: p["vector"] @ np.tanh(q @ p["query_kernel"] + h @ p["memory_kernel"]),
    "normalized_additive": lambda q, h, p: (p["gain"] * p["vector"] / np.linalg.norm(p["vector"])).dot(
        np.tanh(q @ p["query_kernel"] + h @ p["memory_kernel"] + p["bias"])
    ),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_a_score_is_its_equation(name):
    params, steps = initialized(name)
    params = jax.tree.map(np.asarray, params.get("score"))
    scores = [[EQUATIONS[name](q, h, params) for h in np.asarray(MEMORY[0])] for q in np.asarray(QUERY[0])]
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(steps(QUERY, MEMORY, MASK)[0].weights[0], expected, rtol=1e-4)


def test_location_based_weights_are_a_softmax_of_the_query():
    params, steps = initialized("location")
    weights = steps(QUERY, MEMORY, MASK)[0].weights[0]
    np.testing.assert_allclose(weights[:, :4], jax.nn.softmax(QUERY[0] @ params["kernel"]), rtol=1e-4)
    assert not weights[:, 4:].any(), "of 5 positions 4 have a weight"


def test_location_sensitive_scores_read_features_of_the_previous_weights():
    weights, filters = jnp.array([[[0.0, 1.0, 0.0, 0.0, 0.5]]]), jnp.array([[1.0, 0.0], [2.0, 5.0], [3.0, 0.0]])
    features = layers.location_features(weights, filters)
    np.testing.assert_allclose(features[0, 0], [[3, 0], [2, 5], [1, 0], [1.5, 0], [1, 2.5]])
    p, steps = initialized("location_sensitive")
    first, second = steps(QUERY, MEMORY, MASK)
    features = layers.location_features(first.weights, p["filters"])[0, 1] @ p["feature_kernel"]
    summed = (QUERY[0, 1] @ p["query_kernel"])[None] + MEMORY[0] @ p["memory_kernel"] + features + p["bias"][None]
    np.testing.assert_allclose(second.weights[0, 1], jax.nn.softmax(jnp.tanh(summed) @ p["vector"]), rtol=1e-4)


def test_local_m_sees_a_window_around_the_position_of_the_query_inside_the_source():
    weights = initialized("local_m")[1](QUERY, MEMORY, MASK.at[1, 1:].set(False))[0].weights > 0
    np.testing.assert_array_equal(weights[0], [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]])
    np.testing.assert_array_equal(weights[1], [[1, 0, 0, 0, 0]] * 3)


def test_local_p_multiplies_weights_by_a_gaussian_around_the_predicted_position():
    """As in the paper, up to one factor a query."""
    params, steps = initialized("local_p")
    p, lengths = params["window"], np.array([5, 3])
    share = jax.nn.sigmoid(jnp.tanh(QUERY @ p["position_kernel"]) @ p["position_vector"])
    distance = np.arange(LENGTH)[None, None] - np.asarray(share * (lengths - 1)[:, None])[:, :, None]
    weights = np.exp(np.einsum("BQD,BMD->BQM", QUERY, MEMORY) - distance**2 / (2 * 0.5**2))
    weights *= (np.abs(distance) <= 1) & np.asarray(MASK)[:, None]
    result = steps(QUERY, MEMORY, MASK)[0].weights
    np.testing.assert_allclose(result, weights / weights.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_normalizers_are_their_equations():
    scores, mask = jnp.asarray(RANDOM.normal(size=(1, 1, 4)), jnp.float32), jnp.array([[[1, 1, 1, 0]]], bool)
    raw = np.asarray(scores)[0, 0, :3]
    powers, sigmoids = np.exp(2 * raw), 1 / (1 + np.exp(-raw))
    sharpened = jax.jit(partial(layers.sharpened_softmax, sharpness=2.0))(scores, mask)
    np.testing.assert_allclose(sharpened[0, 0], [*(powers / powers.sum()), 0], rtol=1e-5)
    smoothed = jax.jit(layers.smoothed_sigmoid)(scores, mask)
    np.testing.assert_allclose(smoothed[0, 0], [*(sigmoids / sigmoids.sum()), 0], rtol=1e-5)
    assert not jax.jit(layers.masked_softmax)(scores, np.zeros_like(mask)).any()


@pytest.mark.parametrize("name", NAMES)
def test_every_product_has_the_precision_of_the_policy(name):
    config = RnnConfig(d_hidden=SIZE, d_attention=WIDTH, bidirectional_encoder=False)
    site = Site("decoder", "cross", 1, is_causal=False)
    module = registered("rnn_attention")[name](None, config, site, precision=POLICIES["float32_exact"])
    steps = str(jax.make_jaxpr(partial(module.init, method=two_steps))(jax.random.key(0), QUERY, MEMORY, MASK))
    products = steps.count("dot_general[") + steps.count("conv_general_dilated[")
    assert products == steps.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") > 0
