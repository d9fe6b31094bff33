"""The update as a function of its hyperparameters: each of them acts, and as if it were written
into the program."""

import math
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import (
    BatchingConfig,
    ExperimentConfig,
    Hyperparameters,
    MeshConfig,
    OptimizerConfig,
    RnnConfig,
    TrainingConfig,
    TransformerConfig,
    hyperparameters_of,
)
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
from transformer_jax.training.update import Update

VOCABULARY, UPDATES = 24, 3
SINGLE = MeshConfig(data=1)
RATES = {"dropout": 0.1, "embedding_dropout": 0.2}
MODELS = {
    # Rates pass through a loop, a layer that is computed twice, and a gradient of its own.
    "transformer": TransformerConfig(
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_model=16,
        d_ff=32,
        num_heads=2,
        attention_dropout=0.3,
        activation_dropout=0.4,
        attention_backend="blockwise",
        scan_layers=True,
        rematerialize="full",
        **RATES,
    ),
    # Attention has no rates.
    "rnn": RnnConfig(
        d_embedding=8,
        d_hidden=8,
        attention="none",
        bidirectional_encoder=False,
        decoder_start="last",
        scheduled_sampling=0.5,
        **RATES,
    ),
}


class Case(NamedTuple):
    """An update, its compiled step and its batch."""

    update: Update
    step: jax.stages.Compiled
    batch: Batch
    hyperparameters: Hyperparameters

    def parameters_after(self, hyperparameters: Hyperparameters) -> np.ndarray:
        told = put_hyperparameters(hyperparameters, self.update.mesh)
        return updated(self, lambda state: self.step(state, self.batch, told))


def updated(case: Case, step) -> np.ndarray:
    state = case.update.initial_state(0)
    for _ in range(UPDATES):
        state, metrics = step(state)
        assert metrics.finite
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.device_get(state.params))])


@cache
def case_of(model: str, mesh_config: MeshConfig = SINGLE) -> Case:
    # A large epsilon, so that Adam does not blow rounding of tiny gradients up to whole steps.
    optimizer = OptimizerConfig("adamw", "cosine", 0.1, 2, epsilon=1e-2, weight_decay=0.1, clip_norm=0.05)
    config = ExperimentConfig(
        model=MODELS[model],
        optimizer=optimizer,
        training=TrainingConfig(num_updates=5),
        batching=BatchingConfig(accumulation_steps=2),
    )
    devices = math.prod(mesh_config.sizes.values())
    mesh = make_mesh(mesh_config, jax.devices()[:devices])
    objective = TranslationObjective(config, VOCABULARY, VOCABULARY, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (2, 8, 7)).astype(np.int32)
    ids[:, ::3, 4:] = 0
    batch = put_batch(Batch(*map(Tokens.from_ids, ids)), mesh)
    return Case(update, update.lower(batch).compile(), batch, hyperparameters_of(config))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_told_a_number_a_program_does_what_it_does_with_the_constant(model):
    case = case_of(model)
    # As floats they are written into the program.
    constant = jax.jit(lambda state: case.update.step(state, case.batch, case.hyperparameters))
    np.testing.assert_allclose(case.parameters_after(case.hyperparameters), updated(case, constant), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_number_acts(model):
    case = case_of(model)
    leaves, structure = jax.tree.flatten(case.hyperparameters)
    before = case.parameters_after(case.hyperparameters)
    for index, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(case.hyperparameters)):
        other = jax.tree.unflatten(structure, [*leaves[:index], 0.8 * leaf, *leaves[index + 1 :]])
        assert np.abs(case.parameters_after(other) - before).max() > 1e-4, path


@pytest.mark.slow
def test_the_seed_of_the_first_state_is_a_number_too():
    update = case_of("rnn").update
    for seed in (0, 2**32 - 1):
        state = update.initial_state(seed)
        np.testing.assert_array_equal(state.key_data, jax.random.key_data(jax.random.key(seed)))
    tables = [update.initial_state(seed).params["source_embedding"]["table"] for seed in (0, 1, 0)]
    assert not np.array_equal(tables[0], tables[1])
    np.testing.assert_array_equal(tables[0], tables[2])


@pytest.mark.parametrize("mesh_config", [SINGLE, MeshConfig(data=2, fsdp=2)])
def test_a_step_that_was_lowered_for_shapes_is_not_traced_again(mesh_config):
    mesh = make_mesh(mesh_config, jax.devices()[: math.prod(mesh_config.sizes.values())])
    traced, one = [], jnp.float32(1)

    def loss(params, batch, key, hyperparameters):
        traced.append(batch.shape)
        return LossSums(jnp.sum(batch @ params["narrow_bias"]), one, one, one)

    config = ExperimentConfig()
    update = Update(config, loss, lambda key: {"narrow_bias": jnp.ones(3)}, mesh)
    update.lower(jax.ShapeDtypeStruct((8, 3), jnp.float32)).compile()
    before = len(traced)
    told = put_hyperparameters(hyperparameters_of(config), mesh)
    update.jitted(update.initial_state(0), put_batch(np.ones((8, 3), np.float32), mesh), told)
    assert 0 < before == len(traced)


@pytest.mark.slow
def test_recurrent_models_draw_the_same_on_all_devices_as_on_one():
    """Dropout and scheduled sampling go by a row's place in the batch, or in its part where devices
    add up once an update."""
    cases = [case_of("rnn", mesh) for mesh in (SINGLE, MeshConfig(data=2, fsdp=2, tensor=2), MeshConfig(data=4))]
    alone, *split = (case.parameters_after(case.hyperparameters) for case in cases)
    for found in split:
        np.testing.assert_allclose(found, alone, atol=1e-5)
