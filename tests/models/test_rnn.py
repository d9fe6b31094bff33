"""The recurrent encoder-decoders: dropout and sampling in the scan, settings, sizes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.config import ConfigError, RnnConfig, rates_of, resolve
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import call, init_params
from transformer_jax.models.rnn import mirrored
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.state import count_parameters

VOCABULARY = 11
SMALL = {"d_embedding": 6, "d_hidden": 6, "d_attention": 5}
SOURCE = Tokens.from_ids(np.array([[5, 6, 7, 2, 0, 0], [8, 9, 10, 4, 3, 2]], np.int32))
TARGET = Tokens.from_ids(np.array([[5, 6, 2, 0, 0], [8, 9, 10, 4, 2]], np.int32))


def make(**settings):
    model = build_model(RnnConfig(**(SMALL | settings)), VOCABULARY, VOCABULARY)
    return model, random_params(partial(init_params, model), jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [pytest.param({"num_decoder_layers": 2}, marks=pytest.mark.slow), {"scheduled_sampling": 0.5}]
)
def test_dropout_inside_the_scan_is_the_same_with_and_without_jit(settings):
    """Flax counts keys over all steps of a Python loop, which gave later steps other masks."""
    model, params = make(dropout=0.5, **settings)
    source, target = (Tokens(*(leaf[:, :2] for leaf in side)) for side in (SOURCE, TARGET))

    def train(params):
        return call(model, params, "__call__", source, target, train=True, rngs={"dropout": jax.random.key(3)})

    compiled = jax.jit(train)(params)
    with jax.disable_jit():
        np.testing.assert_allclose(train(params), compiled, atol=1e-5)


def test_a_mirrored_sentence_keeps_its_end():
    reversed_ = mirrored(jnp.asarray(SOURCE.ids), SOURCE)
    np.testing.assert_array_equal(reversed_, [[7, 6, 5, 2, 0, 0], [3, 4, 10, 9, 8, 2]])
    np.testing.assert_array_equal(mirrored(reversed_, SOURCE), SOURCE.ids)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "none", "decoder_start": "zeros"}, "model.decoder_start"),
        ({"wiring": "bahdanau", "input_feeding": False}, "model.input_feeding"),
        ({"attention": "additive", "location_taps": 3}, "model.location_taps"),
        ({"attention": "none", "wiring": "bahdanau"}, "model.attention: bahdanau's decoder reads the context"),
        ({"attention": "dot"}, "model.attention: dot needs a memory"),
        ({"decoder_start": "last"}, "model.decoder_start: last needs equally many layers"),
        ({"tying": "all", "d_embedding": 8}, "model.tying: 'all' needs d_embedding=8 to equal"),
    ],
)
def test_settings_that_exclude_each_other(settings, message):
    with pytest.raises(ConfigError, match=message):
        RnnConfig(**(SMALL | settings))


def test_a_decoder_fed_with_its_own_words_does_not_see_the_reference():
    _, params = make(scheduled_sampling=0.5)
    config = RnnConfig(**(SMALL | {"scheduled_sampling": 0.5, "dropout": 0.0, "embedding_dropout": 0.0}))

    @jax.jit
    def train(probability, target):
        rates = rates_of(config)._replace(scheduled_sampling=probability)
        model = build_model(config, VOCABULARY, VOCABULARY, rates=rates)
        key = {"dropout": jax.random.key(1)}
        return call(model, params, "__call__", SOURCE, target, train=True, rngs=key)

    other = TARGET._replace(ids=np.where(np.arange(5) == 0, 9, TARGET.ids).astype(np.int32))
    logits = {probability: [train(probability, target) for target in (TARGET, other)] for probability in (0.0, 1.0)}
    # Without training it is told the reference.
    model = build_model(config, VOCABULARY, VOCABULARY)
    evaluated = jax.jit(partial(call, model, params, "__call__", train=False))(SOURCE, TARGET)
    np.testing.assert_allclose(evaluated, logits[0.0][0], atol=1e-5)
    np.testing.assert_array_equal(*logits[1.0])
    assert not np.allclose(*logits[0.0])
    np.testing.assert_allclose(logits[1.0][0][:, 0], logits[0.0][0][:, 0], atol=1e-5)
    assert not np.allclose(logits[1.0][0], logits[0.0][0])


def sizes_of_recipe(variant):
    """Settings of the model and its number of parameters, without making any."""
    config = resolve(f"configs/seq2seq.py:{variant}")
    vocabulary = config.tokenizer.vocabulary_size
    model = build_model(config.model, vocabulary, vocabulary)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), SOURCE, TARGET, train=False))
    return count_parameters(shapes)


def recurrent_layer(inputs, units, gates):
    return gates * units * (inputs + units + 2)


def test_parameters_of_rnnsearch():
    embeddings, encoder = 2 * 30_000 * 620, 2 * recurrent_layer(620, 1000, 3)
    bridge, decoder = 2000 * 1000 + 1000, recurrent_layer(620 + 2000, 1000, 3)
    attention, readout = 1000 * 1000 + 2000 * 1000 + 1000, (1000 + 620 + 2000) * 2 * 500
    count = embeddings + encoder + bridge + decoder + attention + readout + 30_000 * 500
    assert sizes_of_recipe("rnnsearch_50") == count == 81_420_000
