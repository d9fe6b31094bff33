"""Models run by CTranslate2."""

import numpy as np
import pytest
from interop.small_models import TEXTS, opened, small_model
from libraries import library

from transformer_jax.config import ConfigError
from transformer_jax.interop import ctranslate2_export
from transformer_jax.interop.formats import open_counterpart
from transformer_jax.interop.opened_model import Example
from transformer_jax.interop.parity import compare, token_log_probabilities

library("ctranslate2", "export")

VARIANTS = {
    "published": {},
    "pre-norm, gated, learned positions, untied": {
        "normalization": "pre",
        "feed_forward": "gated_silu",
        "positions": "learned",
        "max_positions": 80,
        "tying": "none",
    },
    "as in public checkpoints": {
        "attention": "biased",
        "feed_forward": "silu",
        "logits_bias": True,
        "norm_epsilon": 1e-3,
        "positions": "fairseq",
        "tying": "output",
        "embedding": "unscaled",
    },
}


# The others differ in what is set, not in how.
FAST = "as in public checkpoints"


@pytest.mark.parametrize(
    "variant", [name if name == FAST else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
def test_outputs_and_greedy_translations_are_the_same(variant, tmp_path):
    model = opened(small_model(**VARIANTS[variant]))
    (tmp_path / "out").mkdir()
    ctranslate2_export.export(model, tmp_path / "out")
    found = compare(model, open_counterpart(tmp_path / "out", model), TEXTS)
    assert found.holds, found.rows()
    assert found.largest < 1e-5
    assert found.sentences == 3


@pytest.mark.parametrize("quantization", ["float16", "int8"])
def test_quantized_weights_are_near_and_the_run_is_left_alone(quantization, tmp_path):
    model = opened(small_model())
    ctranslate2_export.export(model, tmp_path, quantization=quantization)
    example = Example([*model.tokenizers.source.encode(TEXTS[0]), 2], [20, 30, 40, 2])
    (expected,) = token_log_probabilities(model.logits([example]), [example])
    (found,) = open_counterpart(tmp_path, model).outputs([example])
    bound = {"float16": 2e-2, "int8": 1.0}[quantization]
    assert 1e-6 < np.abs(found - expected).max() < bound
    assert all(np.array_equal(leaf, model.named[name]) for name, leaf in small_model().named.items())


@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "rectified"},
        {"embedding": "zero_padding"},
        {"d_key": 4},
        {"d_value": 4},
        {"positions": "none"},
        {"attention": "unscaled"},
    ],
)
def test_a_setting_that_the_specification_lacks_is_named(settings, tmp_path):
    model = opened(small_model(**settings))
    with pytest.raises(ConfigError, match=rf"model.{next(iter(settings))}: .* CTranslate2"):
        ctranslate2_export.export(model, tmp_path)
