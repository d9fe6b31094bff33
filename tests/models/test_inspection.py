"""What is read off a pass must be what the model computed with."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.config import RnnConfig, TransformerConfig
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.models.build import build_model
from transformer_jax.models.inspection import (
    attention_records,
    gradients_times_inputs,
    head_counts,
    layers_by_kind,
    target_log_probs,
    without_head,
)
from transformer_jax.models.interface import init_params
from transformer_jax.sequence_types import Tokens
from transformer_jax.tools.explorer.readings import attention_readings

MODELS = {
    "transformer": TransformerConfig(8, 8, 2, num_encoder_layers=1, num_decoder_layers=1, tying="none"),
    "rnn": RnnConfig(d_embedding=8, d_hidden=8, d_attention=8, reverse_source=True),
}
PAIRS = [(1, 0)]
SIDES = [[5, 6, 7, 2], [8, 9, 2]]


@pytest.fixture(scope="module", params=["transformer", pytest.param("rnn", marks=pytest.mark.slow)])
def built(request):
    """A model, its parameters, a pair."""
    model = build_model(MODELS[request.param], 12, 12)
    sides = [Tokens.from_ids(np.array([ids], np.int32)) for ids in SIDES]
    return model, random_params(partial(init_params, model), jax.random.key(0)), sides


def test_norms_and_cosines_give_the_norm_of_what_all_heads_add(built):
    model, params, sides = built
    records = jax.jit(partial(attention_records, model))(params, *sides)
    (reading,) = attention_readings(
        {path: record for path, record in records.items() if path.endswith("cross_attention")},
        {"source": 4, "target": 3},
    )
    (record,) = (record for path, record in records.items() if path.endswith("cross_attention"))
    direct = np.linalg.norm(np.einsum("BHQM,BHMD->BQMD", *map(np.asarray, record)), axis=-1)[0]
    added = reading.weights[0] * reading.value_norms[0][:, None]
    squares = (added**2).sum(axis=0)
    for (first, second), cosine in zip(PAIRS, reading.value_cosines[0], strict=False):
        squares += 2 * added[first] * added[second] * cosine
    np.testing.assert_allclose(np.sqrt(squares), direct, atol=1e-5)


def test_weights_times_transformed_values_are_the_output(monkeypatch):
    """Of the attention to the source, which is the second that the decoder calls."""
    model = build_model(MODELS["transformer"], 12, 12)
    sides = [Tokens.from_ids(np.array([ids], np.int32)) for ids in SIDES]
    project_output = MultiHeadAttention.project_output

    def outputs_and_records(params):
        outputs = []

        def kept(self, heads):
            outputs.append(project_output(self, heads))
            return outputs[-1]

        monkeypatch.setattr(MultiHeadAttention, "project_output", kept)
        return outputs, attention_records(model, params, *sides)

    outputs, records = jax.jit(outputs_and_records)(random_params(partial(init_params, model), jax.random.key(0)))
    names = ["encoder_layers_0/self_attention", "decoder_layers_0/self_attention", "decoder_layers_0/cross_attention"]
    for name, output in zip(names, outputs, strict=True):
        np.testing.assert_allclose(jnp.einsum("BHQM,BHMD->BQD", *records[name]), output, atol=1e-5)


def test_gradient_times_input_is_a_directional_derivative(built):
    """Scaling a word's embedding by 1 + e moves a log-probability by e times its attribution."""
    model, params, sides = built
    to_source, to_target = jax.jit(partial(gradients_times_inputs, model))(params, *sides)
    assert (to_source.shape, to_target.shape) == ((3, 4), (3, 3))
    assert np.abs(np.triu(to_target, 1)).max() < 1e-7
    change = 1e-2

    @jax.jit
    def moved(params, by):
        table = params["source_embedding"]["table"]
        scaled = params["source_embedding"] | {"table": table.at[5].multiply(1 + by)}
        return target_log_probs(model, params | {"source_embedding": scaled}, *sides)

    difference = (moved(params, change) - moved(params, -change)) / (2 * change)
    assert np.abs(difference).max() > 1e-2
    np.testing.assert_allclose(difference, to_source[:, 0], atol=1e-3)


def test_layers_keep_their_order_through_jit():
    paths = [f"encoder_layers_{layer}/self_attention" for layer in range(11)]
    values = jax.jit(lambda: {path: jnp.float32(layer) for layer, path in enumerate(paths)})()
    assert list(values) == sorted(paths) != paths
    assert [*map(float, layers_by_kind(values)["encoder"].values())] == list(range(11))


def test_the_output_is_the_sum_of_what_the_heads_contribute():
    inputs, segments = jax.random.normal(jax.random.key(0), (1, 4, 8)), jnp.ones((1, 4), int)
    mask, name = SentenceMask(segments, segments), "encoder_layers_0/self_attention"
    attention = MultiHeadAttention(num_heads=2, key_size=4, value_size=4, d_model=8)
    kernels = attention.init(jax.random.key(1), inputs, inputs, mask, train=False)["params"]
    params = {"encoder_layers_0": {"self_attention": kernels, "norm": {"output": jnp.ones(3)}}}

    def output(params):
        kernels = params["encoder_layers_0"]["self_attention"]
        return attention.apply({"params": kernels}, inputs, inputs, mask, train=False)

    assert head_counts(params) == {name: 2}
    first, second = (output(without_head(params, name, head)) for head in (1, 0))
    np.testing.assert_allclose(first + second, output(params), atol=1e-6)
    assert np.abs(first).max() > 0.1
