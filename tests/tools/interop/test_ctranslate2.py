"""Models run by CTranslate2."""

import json

import pytest
from libraries import library
from tools.interop.small_models import TEXTS, small_model

from transformer_jax.array_types import BOS_ID
from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.tokenizers import TokenizerPair, save_tokenizers
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.tools.interop import ctranslate2
from transformer_jax.tools.interop.interop_commands import open_counterpart
from transformer_jax.tools.interop.parity import compare

library("ctranslate2", "export")

GATED = {"normalization": "pre", "feed_forward": "swiglu", "positions": "learned", "max_positions": 80}
AS_PUBLISHED = {"attention": "biased", "feed_forward": "silu", "logits_bias": True, "norm_epsilon": 1e-3}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({**GATED, "tying": "none"}, marks=pytest.mark.slow),
        {**AS_PUBLISHED, "positions": "fairseq", "tying": "output", "embedding": "unscaled"},
    ],
)
def test_outputs_and_greedy_translations_are_the_same(settings, tmp_path):
    small = small_model(**settings)
    if (bias := small.arrays.get("projection/logits_bias")) is not None:
        # By far the most probable, and never chosen.
        bias[BOS_ID] += 20
    model = small.opened()
    ctranslate2.export(model, tmp_path)
    comparison = compare(model, open_counterpart(tmp_path, model), TEXTS)
    assert comparison.holds and comparison.largest < 1e-5, comparison.rows()
    assert (comparison.sentences, comparison.divergences) == (3, ())


@pytest.mark.parametrize(
    "settings", [{"attention": "rectified"}, {"embedding": "zero_padding"}, {"d_key": 4}, {"positions": "none"}]
)
def test_a_setting_that_the_specification_lacks_is_named(settings, tmp_path):
    with pytest.raises(ConfigError, match=rf"model.{next(iter(settings))}: .* CTranslate2"):
        ctranslate2.export(small_model(**settings).opened(), tmp_path)


def test_a_folder_of_another_model_is_refused_when_it_is_opened(tmp_path):
    model = small_model().opened()
    ctranslate2.export(model, tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.bin"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(DataError, match="not a complete CTranslate2 model"):
        open_counterpart(tmp_path, model)
    save_tokenizers(TokenizerPair(ByteTokenizer(), ByteTokenizer()), tmp_path)
    with pytest.raises(DataError, match="source tokenizer differs from the run's .260 pieces there, 400 here"):
        open_counterpart(tmp_path, model)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization": "int4"}))
    with pytest.raises(DataError, match="quantization='int4' is not one of"):
        open_counterpart(tmp_path, model)
