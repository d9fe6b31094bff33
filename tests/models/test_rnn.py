"""The recurrent encoder-decoders: every attention and every wiring keeps what is asked of a sequence model."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.config import ConfigError, RnnConfig, resolve
from transformer_jax.config.plugins import CORE
from transformer_jax.decoding.beam_search import beam_search
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import call, shift_right
from transformer_jax.models.rnn import mirrored
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.sharding import partition_of, path_of
from transformer_jax.training.state import count_parameters

VOCABULARY = 11
SMALL = {"d_embedding": 6, "d_hidden": 6, "d_attention": 5}
ONE_WAY = {"bidirectional_encoder": False, "decoder_start": "last"}
VARIANTS = {
    "sutskever": {"attention": "none", "reverse_source": True, "num_encoder_layers": 2, "num_decoder_layers": 2}
    | ONE_WAY,
    "cho": {"attention": "none", "cell": "gru"},
    "bahdanau": {"attention": "additive", "wiring": "bahdanau", "cell": "gru"},
    "without feeding": {"attention": "general", "input_feeding": False},
    "deep and tied": {"num_encoder_layers": 2, "num_decoder_layers": 3, "tying": "all"},
    "zeros": {"decoder_start": "zeros", "tying": "output"},
    "bfloat16": {"compute_dtype": "bfloat16"},
    "sharpened": {"attention": "location_sensitive", "attention_weights": "sharpened"},
    "smoothed": {"attention": "location_sensitive", "wiring": "bahdanau", "attention_weights": "smoothed"},
}
# What is special about each attention is tested with the attentions; here they only have to fit in. Dot products without
# parameters and a state do as the general attention of the variants.
ATTENTIONS = set(CORE["rnn_attention"]["models.build_rnn"].split()) - {"dot", "scaled_dot", "general"}
FITTING = VARIANTS | {name: {"attention": name} | ONE_WAY for name in sorted(ATTENTIONS)}
for local in ("local_m", "local_p"):
    FITTING[local]["attention_window"] = 2
SOURCE = Tokens.from_ids(np.array([[5, 6, 7, 2, 0, 0], [8, 9, 10, 4, 3, 2]], np.int32))
TARGET = Tokens.from_ids(np.array([[5, 6, 2, 0, 0], [8, 9, 10, 4, 2]], np.int32))


def make(**settings):
    model = build_model(RnnConfig(**(SMALL | settings)), VOCABULARY, VOCABULARY)
    variables = random_params(partial(model.init, train=False), jax.random.key(0), SOURCE, TARGET)

    @cache
    def compiled(method, options):
        return jax.jit(lambda *arguments: call(model, variables["params"], method, *arguments, **dict(options)))

    def ask(method, *arguments, **options):
        return compiled(method, tuple(options.items()))(*arguments)

    @jax.jit
    def logits_and_gradient(source, target):
        def loss(params):
            logits = call(model, params, "__call__", source, target, train=False)
            return jnp.sum(jax.nn.log_softmax(logits)[:, :, 5]), logits

        (_, logits), gradient = jax.value_and_grad(loss, has_aux=True)(variables["params"])
        return logits, gradient

    return model, variables, ask, logits_and_gradient


@cache
def made(name):
    return make(**FITTING[name])


@pytest.fixture(params=VARIANTS, scope="module")
def variant(request):
    return made(request.param)


@pytest.fixture(params=FITTING, scope="module")
def fitting(request):
    return made(request.param)


@pytest.mark.checked
def test_one_step_at_a_time_equals_the_teacher_forced_pass(fitting):
    """Every beam reads words of its own, and beams change places on the way."""
    _, _, ask, logits_and_gradient = fitting
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (3, 2, 5)).astype(np.int32)
    targets = [Tokens.from_ids(each) for each in ids]
    full = np.stack([logits_and_gradient(SOURCE, target)[0] for target in targets], axis=1)
    inputs = np.stack([shift_right(target) for target in targets], axis=1)
    cache = ask("init_cache", ask("encode", SOURCE, train=False), beam_width=3, max_length=7)
    order = [0, 1, 2]
    for position in range(5):
        logits, cache = ask("decode_step", jnp.asarray(inputs[:, order, position]), cache)
        np.testing.assert_allclose(logits, full[:, order, position], atol=1e-4)
        turn = [[2, 0, 1], [1, 0, 2]][position % 2]
        order = [order[beam] for beam in turn]
        moved = jax.tree.map(lambda leaf, turn=turn: leaf[:, jnp.array(turn)] if leaf.ndim else leaf, cache.per_beam)
        cache = cache._replace(per_beam=moved)


def test_padding_changes_nothing(variant):
    _, _, ask, logits_and_gradient = variant
    short = [Tokens(*(leaf[:1, :width] for leaf in side)) for side, width in ((SOURCE, 4), (TARGET, 3))]
    whole, _ = logits_and_gradient(SOURCE, TARGET)
    np.testing.assert_allclose(ask("__call__", *short, train=False)[0], whole[0, :3], atol=1e-5)


def test_a_token_depends_on_nothing_after_it_and_on_the_source(variant):
    logits_and_gradient = variant[-1]
    base, _ = logits_and_gradient(SOURCE, TARGET)
    changed = TARGET._replace(ids=jnp.asarray(TARGET.ids).at[1, 2].set(5))
    differs = np.abs(np.asarray(logits_and_gradient(SOURCE, changed)[0] - base)[1]).max(-1) > 1e-7
    np.testing.assert_array_equal(differs, [False, False, False, True, True])
    other = SOURCE._replace(ids=jnp.asarray(SOURCE.ids).at[1, 0].set(5))
    assert (np.abs(np.asarray(logits_and_gradient(other, TARGET)[0] - base)[1]).max(-1) > 1e-8).all()


@pytest.mark.checked
def test_every_parameter_has_a_gradient_and_a_sharding(fitting):
    _, gradient = fitting[-1](SOURCE, TARGET)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.abs(leaf).max() > 0, path_of(path)
        axes = [axis for axis in partition_of(path_of(path), leaf.shape) if axis]
        # Filters are small; everything else with two dimensions is split.
        assert axes or leaf.ndim < 2 or path_of(path).endswith("filters"), path_of(path)


@pytest.mark.parametrize("settings", [{"num_decoder_layers": 2, "num_encoder_layers": 2}, {"scheduled_sampling": 0.5}])
def test_dropout_inside_the_scan_is_the_same_with_and_without_jit(settings):
    """Flax counts draws over all steps of a loop that Python runs, which gave every step but the first another mask."""
    model, variables, *_ = make(dropout=0.5, **settings)
    source, target = (Tokens(*(leaf[:, :2] for leaf in side)) for side in (SOURCE, TARGET))

    def train(params):
        return call(model, params, "__call__", source, target, train=True, rngs={"dropout": jax.random.key(3)})

    compiled = jax.jit(train)(variables["params"])
    with jax.disable_jit():
        np.testing.assert_allclose(train(variables["params"]), compiled, atol=1e-5)


@pytest.mark.parametrize("name", ["bahdanau", "deep and tied", "without feeding"])
def test_search_finds_what_scoring_every_hypothesis_finds_whatever_the_batch(name):
    model, variables, ask, _ = made(name)

    @jax.jit
    def scores_found(ids):
        memory = call(model, variables["params"], "encode", Tokens.from_ids(ids), train=False)
        cache = call(model, variables["params"], "init_cache", memory, beam_width=9, max_length=2)
        step = partial(call, model, variables["params"], "decode_step")
        limits = jnp.array([2, 2])
        return beam_search(step, cache, max_lengths=limits, max_length=2, beam_width=9, length_penalty=0.0).scores

    both, reversed_, twice = (np.asarray(scores_found(SOURCE.ids[rows])) for rows in ([0, 1], [1, 0], [1, 1]))
    np.testing.assert_allclose(reversed_, both[::-1], atol=1e-5)
    np.testing.assert_allclose(twice, both[[1, 1]], atol=1e-5)
    candidates = np.array([[2, 0], *([token, 2] for token in range(3, VOCABULARY))], np.int32)
    target = Tokens.from_ids(candidates)
    for row in range(2):
        source = Tokens.from_ids(np.repeat(SOURCE.ids[row : row + 1], len(candidates), axis=0))
        log_probs = np.asarray(jax.nn.log_softmax(ask("__call__", source, target, train=False)))
        chosen = np.take_along_axis(log_probs, candidates[..., None], axis=-1)[..., 0]
        best = np.sort((chosen * (target.segments != 0)).sum(-1))[::-1][:3]
        np.testing.assert_allclose(both[row, :3], best, atol=1e-4)


def test_a_mirrored_sentence_keeps_its_end():
    reversed_ = mirrored(jnp.asarray(SOURCE.ids), SOURCE)
    np.testing.assert_array_equal(reversed_, [[7, 6, 5, 2, 0, 0], [3, 4, 10, 9, 8, 2]])
    np.testing.assert_array_equal(mirrored(reversed_, SOURCE), SOURCE.ids)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "none", "decoder_start": "zeros"}, "model.decoder_start"),
        ({"wiring": "bahdanau", "input_feeding": False}, "model.input_feeding"),
        ({"attention": "general", "attention_window": 3}, "model.attention_window"),
        ({"attention": "additive", "location_taps": 3}, "model.location_taps"),
        ({"attention": "location_sensitive", "attention_sharpness": 3.0}, "model.attention_sharpness"),
        ({"attention": "none", "wiring": "bahdanau"}, "model.attention: bahdanau's decoder reads the context"),
        ({"attention": "dot"}, "model.attention: dot needs a memory"),
        ({"decoder_start": "last"}, "model.decoder_start: last needs equally many layers"),
        ({"tying": "all", "d_embedding": 8}, "model.tying: 'all' needs d_embedding=8 to equal"),
        ({"cell": "rnn"}, "model.cell: 'rnn' is not one of lstm, gru"),
    ],
)
def test_settings_that_exclude_each_other(settings, message):
    with pytest.raises(ConfigError, match=message):
        RnnConfig(**(SMALL | settings))


@pytest.mark.parametrize("settings", [{}, {"attention": "additive", "wiring": "bahdanau", "cell": "gru"}])
def test_a_decoder_fed_with_its_own_words_does_not_see_the_reference(settings):
    logits = {}
    for probability in (0.0, 1.0):
        model, variables, ask, _ = make(scheduled_sampling=probability, dropout=0.0, embedding_dropout=0.0, **settings)
        other = TARGET._replace(ids=jnp.asarray(TARGET.ids).at[:, 0].set(9))
        key = {"dropout": jax.random.key(1)}
        train = jax.jit(partial(call, model, variables["params"], "__call__", SOURCE, train=True, rngs=key))
        logits[probability] = [train(target) for target in (TARGET, other)]
        # Without training it is told the reference.
        np.testing.assert_allclose(ask("__call__", SOURCE, TARGET, train=False), logits[0.0][0], atol=1e-5)
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


def test_parameters_of_luong():
    embeddings, encoder = 2 * 50_000 * 1000, 4 * recurrent_layer(1000, 1000, 4)
    decoder = recurrent_layer(1000 + 1000, 1000, 4) + 3 * recurrent_layer(1000, 1000, 4)
    general, window, combine = 1000 * 1000, 1000 * 1000 + 1000, 2000 * 1000
    count = embeddings + encoder + decoder + general + window + combine + 50_000 * 1000
    assert sizes_of_recipe("luong_wmt") == count == 222_065_000
