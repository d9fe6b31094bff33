"""Decoding and the loss of a split use one precision, not that of training on a CPU."""

import re

import jax
import numpy as np
import pytest
from run_settings import tiny_settings
from tasks.language_model_settings import language_model_config

from transformer_jax.config import from_dict
from transformer_jax.config.conversion import apply_overrides
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.language_model.language_model_task import LanguageModelObjective
from transformer_jax.tasks.translation.translation_ensemble import EnsembleObjective
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.training.sharding import make_mesh

IDS = np.array([[5, 6, 2]], np.int32)
BATCH = Batch(Tokens.from_ids(IDS), Tokens.from_ids(IDS))


def objective(tmp_path, dtype, **blocks):
    settings = {"model.compute_dtype": "bfloat16", "decoding.compute_dtype": dtype}
    config = from_dict(apply_overrides(tiny_settings(tmp_path) | blocks, settings.items()))
    return TranslationObjective(config, 12, 12, make_mesh(config.mesh, jax.devices()[:1]))


def counts_of_products_and_casts(function, *arguments):
    text = str(jax.make_jaxpr(function)(*arguments))
    return len(re.findall(r"dot_general", text)), len(re.findall(r"bf16\[[^\]]*\] = convert_element_type", text))


@pytest.mark.parametrize("dtype", ["model", "float32", "bfloat16"])
def test_one_precision_for_all_of_evaluation(tmp_path, dtype):
    single = objective(tmp_path, dtype)
    params = jax.eval_shape(single.init_params, jax.random.key(0))
    together = EnsembleObjective([single, single])
    members = {f"members_{number}": params for number in range(2)}

    def encode(params):
        return call(single.model, params, "encode", BATCH[0], train=False)

    def decode_step(params):
        cache = call(single.model, params, "init_cache", encode(params), beam_width=1, max_length=4)
        return call(single.model, params, "decode_step", IDS[:, :1], cache)

    # On a CPU only the output layer is rounded: both operands of its product.
    rounded = 2 if dtype == "bfloat16" else 0
    assert counts_of_products_and_casts(encode, params)[1] == 0
    for function, of, models in (
        (single.unsmoothed_loss, (params, BATCH), 1),
        (decode_step, (params,), 1),
        (together.unsmoothed_loss, (members, BATCH), 2),
    ):
        products, result = counts_of_products_and_casts(function, *of)
        assert products > 4 and result == models * rounded
    assert single.evaluation_dtype == together.evaluation_dtype == ("bfloat16" if rounded else "float32")


def test_an_rnn_and_a_language_model_round_in_all_layers(tmp_path):
    small = {"kind": "rnn", "d_embedding": 8, "d_hidden": 8, "d_attention": 8}
    for dtype in ("model", "bfloat16"):
        rnn = objective(tmp_path, dtype, model=small)
        params = jax.eval_shape(rnn.init_params, jax.random.key(0))
        products, casts = counts_of_products_and_casts(rnn.unsmoothed_loss, params, BATCH)
        assert casts == 0 if dtype == "model" else casts > products > 4
    config = language_model_config(tmp_path, model={"compute_dtype": "bfloat16"})
    model = LanguageModelObjective(config, 12, make_mesh(config.mesh, jax.devices()[:1]))
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    products, casts = counts_of_products_and_casts(model.unsmoothed_loss, params, BATCH.target, IDS > 0)
    assert casts > products > 4
