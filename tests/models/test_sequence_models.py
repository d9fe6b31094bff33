"""Properties of every sequence model, as in ``conform``: decoding, causality, packing."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.models.build import init_decoder_only
from transformer_jax.models.interface import init_params
from transformer_jax.registry.index import own_parts
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tools.conform.conformity import LENGTH, OF_LANGUAGE_MODELS, OF_MODELS, OF_TRANSFORMERS, checked
from transformer_jax.tools.conform.trials import ROWS, Sentences, Trial, sentences, trial_config
from transformer_jax.training.sharding import partition_of, path_of

ONE_WAY = {"bidirectional_encoder": False, "decoder_start": "last"}
MODELS = {
    "translation": {
        "published": {"num_encoder_layers": 2, "num_decoder_layers": 2},
        "pre-norm, gated, learned positions, unscaled": {
            "normalization": "pre",
            "feed_forward": "swiglu",
            "positions": "learned",
            "attention": "unscaled",
        },
        "other head sizes, unequal depth, bfloat16": {
            "d_key": 6,
            "d_value": 10,
            "num_encoder_layers": 3,
            "compute_dtype": "bfloat16",
        },
        "as in public checkpoints": {
            "attention": "biased",
            "embedding": "unscaled",
            "feed_forward": "silu",
            "positions": "fairseq",
            "logits_bias": True,
            "norm_epsilon": 1e-5,
        },
        "modified attention": {"attention": "grouped_query,gated,soft_cap", "positions": "rope"},
        "modified attention with biases": {"attention": "talking_heads", "positions": "t5"},
        "mixers": {"num_decoder_layers": 2, "mixers": "ssru gated_linear_attention"},
    },
    "language_model": {
        "published": {},
        "post-norm, sinusoids, capped": {
            "normalization": "post",
            "positions": "sinusoidal",
            "projection": "soft_capped",
        },
        "other head sizes, bfloat16": {"d_key": 6, "d_value": 10, "compute_dtype": "bfloat16"},
    },
    "rnn": {
        "sutskever": {"attention": "none", "reverse_source": True, "num_encoder_layers": 2, "num_decoder_layers": 2}
        | ONE_WAY,
        "bahdanau": {"attention": "concat", "wiring": "bahdanau", "cell": "gru"},
        "deep": {"attention": "normalized_additive", "num_encoder_layers": 2, "num_decoder_layers": 3},
        "zeros, bfloat16, without feeding": {
            "attention": "general",
            "input_feeding": False,
            "decoder_start": "zeros",
            "compute_dtype": "bfloat16",
        },
        "sharpened": {"attention": "cumulative_location_sensitive", "attention_weights": "sharpened"},
        "smoothed": {"attention": "location_sensitive", "wiring": "bahdanau", "attention_weights": "smoothed"},
    },
}
# Luong's concat is the additive score, and the scaled dot product is one.
TAKEN = {"additive", "scaled_dot", *(settings.get("attention") for settings in MODELS["rnn"].values())}
OTHERS = [name for kind, name in own_parts() if kind == "rnn_attention" and name not in TAKEN]
MODELS["rnn"] |= {name: {"attention": name} | ONE_WAY for name in OTHERS}
PROPERTIES = OF_MODELS | OF_TRANSFORMERS | OF_LANGUAGE_MODELS
FAST = {("translation", "published"), ("rnn", "sutskever"), ("rnn", "bahdanau")}


def cases(kinds, without=()):
    """The models of some kinds; all but a few are slow."""
    every = [(kind, name) for kind in kinds for name in MODELS[kind] if name not in without]
    return [pytest.param(*item, marks=[] if item in FAST else [pytest.mark.slow]) for item in every]


@cache
def trial_of(kind, name):
    config = trial_config(kind, {"model": MODELS[kind][name]}, small=True)
    init = init_decoder_only if kind == "language_model" else init_params
    return Trial(config, params=random_params(partial(init, Trial(config).model), jax.random.key(0)))


@pytest.mark.checked
@pytest.mark.parametrize(("kind", "name"), cases(MODELS))
def test_decoding_equals_the_full_pass_and_no_token_sees_another_sentence_or_a_later_token(kind, name):
    names = ["a decoding step equals the full pass"]
    names += [] if kind == "rnn" else ["packed equals apart"]
    names += OF_LANGUAGE_MODELS if kind == "language_model" else []
    names += ["beam search ignores the batch"] if name in ("published", "bahdanau") else []
    trial = trial_of(kind, name)
    result = [checked(trial, kind, name, PROPERTIES[name]) for name in names]
    assert [item for item in result if not item.holds] == []
    # A target, and the target with each of its tokens but the last changed, in the program of the
    # full pass.
    source, target = (np.tile(side, (ROWS, 1)) for side in sentences(1, LENGTH, unequal=False))
    target[range(1, LENGTH), range(LENGTH - 1)] = 3
    base, *others = trial.logits(Sentences(source, target).batch)[:LENGTH]
    reads = np.abs(np.stack(others) - base).max(-1) > 1e-6
    np.testing.assert_array_equal(reads, np.triu(np.ones((LENGTH - 1, LENGTH), bool), 1))


# Models whose parameters no other has, and the one without attention.
@pytest.mark.parametrize(("kind", "name"), cases(["rnn"], without=("smoothed", "dot", "local_m")))
def test_padding_changes_no_logit_of_an_rnn_and_every_parameter_has_a_gradient_and_a_sharding(kind, name):
    trial, batch = trial_of(kind, name), sentences(ROWS, 4).batch
    wide = Batch(*(Tokens(*(np.pad(leaf, ((0, 0), (0, 2))) for leaf in side)) for side in batch))
    is_token = batch.target.segments > 0

    def loss(params):
        logits = trial.teacher_forced(params, batch)
        return jnp.sum(jnp.square(logits) * is_token[..., None]), logits

    gradient, logits = jax.jit(jax.grad(loss, has_aux=True))(trial.params)
    np.testing.assert_allclose(trial.logits(wide)[:, :4][is_token], logits[is_token], atol=1e-4)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.abs(leaf).max() > 0, path_of(path)
        axes = [axis for axis in partition_of(path_of(path), leaf.shape) if axis]
        # Filters are small; everything else with two dimensions is split.
        assert axes or leaf.ndim < 2 or path_of(path).endswith("filters"), path_of(path)
