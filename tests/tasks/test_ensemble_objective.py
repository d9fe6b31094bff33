"""A Transformer and a recurrent model together: their loss is that of their search."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.array_types import BOS_ID
from transformer_jax.config import MeshConfig, from_dict
from transformer_jax.models.ensemble import joined_params
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.translation.translation_ensemble import EnsembleObjective
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.training.sharding import make_mesh, put_rows

VOCABULARY = 12
RNN = {"kind": "rnn", "d_embedding": 8, "d_hidden": 8, "attention": "general"}
SOURCE = np.array([[5, 6, 7, 2], [8, 9, 2, 0]] * 2, np.int32)
TARGET = np.array([[7, 6, 5, 11, 2], [9, 8, 2, 0, 0]] * 2, np.int32)


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    settings = tiny_settings(tmp_path_factory.mktemp("cache"))
    capped = {"model": settings["model"] | {"projection": "soft_capped"}, "parts": {"soft_capped": {"cap": 1.0}}}
    return [from_dict(settings | capped), from_dict(settings | {"model": RNN})]


@pytest.fixture(scope="module")
def params(configs):
    """Hyperparameters of the right shapes, large enough for the models to disagree."""
    mesh, generator = make_mesh(MeshConfig(1, 1, 1), jax.devices()[:1]), np.random.default_rng(0)
    objectives = [TranslationObjective(config, VOCABULARY, VOCABULARY, mesh) for config in configs]
    shapes = [jax.eval_shape(objective.init_params, jax.random.key(0)) for objective in objectives]
    return jax.tree.map(lambda leaf: jnp.asarray(generator.normal(0, 0.5, leaf.shape), jnp.float32), shapes)


def objective_on(mesh_config, configs):
    devices = jax.devices()[: math.prod(mesh_config.sizes.values())]
    mesh = make_mesh(mesh_config, devices)
    return EnsembleObjective([TranslationObjective(config, VOCABULARY, VOCABULARY, mesh) for config in configs]), mesh


def probabilities_step_by_step(model, params):
    """[B, T, V]: what search would see, had it chosen ``TARGET``."""
    ask = partial(call, model, params)
    memory = ask("encode", Tokens.from_ids(SOURCE), train=False)
    cache = ask("init_cache", memory, beam_width=1, max_length=TARGET.shape[1])
    read = np.pad(TARGET[:, :-1], ((0, 0), (1, 0)), constant_values=BOS_ID)
    step, columns = jax.jit(partial(ask, "decode_step")), []
    for column in range(TARGET.shape[1]):
        logits, cache = step(jnp.asarray(read[:, column : column + 1]), cache)
        columns.append(np.asarray(jax.nn.softmax(logits[:, 0])))
    return np.stack(columns, axis=1)


@pytest.fixture(scope="module")
def together(configs, params):
    """[B, T, V]: the probabilities of the ensemble, step by step, the mean of its members'."""
    single, _ = objective_on(MeshConfig(1, 1, 1), configs)
    result = probabilities_step_by_step(single.model, joined_params(params))
    alone = [probabilities_step_by_step(model, own) for model, own in zip(single.model.members, params, strict=True)]
    np.testing.assert_allclose(result, np.mean(alone, axis=0), atol=1e-5)
    return result


@pytest.mark.slow
def test_the_loss_is_that_of_the_mean_probabilities_of_cached_steps(configs, params, together):
    objective, mesh = objective_on(MeshConfig(data=2, fsdp=2, tensor=2), configs)
    batch = put_rows(Batch(Tokens.from_ids(SOURCE), Tokens.from_ids(TARGET)), mesh)
    sums = jax.jit(objective.unsmoothed_loss)(joined_params(params), batch)

    of_target = np.take_along_axis(together, TARGET[:, :, None], axis=2)[:, :, 0]
    is_token = TARGET != 0
    assert float(sums.tokens) == is_token.sum() == 16
    assert float(sums.nll) == pytest.approx(-np.log(of_target[is_token]).sum(), rel=1e-4)
    assert float(sums.correct) == (together.argmax(axis=2) == TARGET)[is_token].sum()
