"""What devices really send each other and hold, read from the compiled training step."""

import math
from functools import cache

import jax
import numpy as np
import pytest

from transformer_jax.config import (
    ExperimentConfig,
    MeshConfig,
    OptimizerConfig,
    RnnConfig,
    TransformerConfig,
    hyperparameters_of,
)
from transformer_jax.config.data import BatchingConfig, TokenizerConfig
from transformer_jax.layers.mesh_axes import MIN_POSITIONS
from transformer_jax.sequence_types import Batch, Tokens, batch_shape
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.tools.preflight.collectives import Collective, collectives_of
from transformer_jax.tools.preflight.compiled_program import bytes_on_a_device
from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
from transformer_jax.training.update import Update

VOCABULARY, D_MODEL, D_FF, WIDTH, LAYERS = 128, 32, 64, 16, 2
TABLE_BYTES = 4 * VOCABULARY * D_MODEL
SIZES = {"d_model": D_MODEL, "d_ff": D_FF, "num_heads": 4}
MATRIX_BYTES = 4 * D_MODEL * D_MODEL
# A rate that moves every parameter, and a large epsilon, so that rounding of tiny gradients is not
# blown up to whole steps.
OPTIMIZER = OptimizerConfig("adamw", "constant", learning_rate=0.1, warmup_updates=1, epsilon=1e-3)
MESHES = {
    "single": MeshConfig(data=1),
    "data": MeshConfig(data=8),
    "data and tensor": MeshConfig(data=4, tensor=2),
    "all": MeshConfig(data=2, fsdp=2, tensor=2),
    "context": MeshConfig(data=1, fsdp=2, context=2, tensor=2),
}


def update_on(mesh_config: MeshConfig) -> Update:
    undropped = {"dropout": 0.0, "embedding_dropout": 0.0}
    return made_of(
        TransformerConfig(**SIZES, **undropped, num_encoder_layers=LAYERS, num_decoder_layers=LAYERS, scan_layers=True),
        mesh_config,
    )


def made_of(model: TransformerConfig | RnnConfig, mesh_config: MeshConfig, parts: int = 1) -> Update:
    config = ExperimentConfig(
        model=model,
        tokenizer=TokenizerConfig(vocabulary_size=VOCABULARY),
        batching=BatchingConfig(tokens_per_update=8192, row_multiple=8 * parts, accumulation_steps=parts),
        optimizer=OPTIMIZER,
        mesh=mesh_config,
    )
    devices = math.prod(mesh_config.sizes.values())
    mesh = make_mesh(mesh_config, jax.devices()[:devices])
    objective = TranslationObjective(config, VOCABULARY, VOCABULARY, mesh)
    return Update(config, objective.loss, objective.init_params, mesh)


@cache
def program_of(name: str) -> jax.stages.Compiled:
    update = update_on(MESHES[name])
    return update.lower(batch_shape(16, WIDTH, WIDTH)).compile()


def exchanged(name: str) -> list[Collective]:
    return collectives_of(program_of(name).as_text(), 8)


def largest(collectives: list[Collective], kind: str) -> int:
    return max((collective.bytes for collective in collectives if collective.kind == kind), default=0)


def batch() -> Batch:
    generator = np.random.default_rng(0)
    ids = generator.integers(4, VOCABULARY, (2, 16, WIDTH)).astype(np.int32)
    ids[:, ::3, 7:] = 0
    return Batch(*map(Tokens.from_ids, ids))


@cache
def two_updates(name: str):
    update, step = update_on(MESHES[name]), program_of(name)
    hyperparameters = put_hyperparameters(hyperparameters_of(ExperimentConfig(optimizer=OPTIMIZER)), update.mesh)
    hyperparameters = hyperparameters._replace(rates=update.hyperparameter_shapes.rates)
    state = update.initial_state(0)
    before = jax.device_get(state.params)
    for _ in range(2):
        state, metrics = step(state, put_batch(batch(), update.mesh), hyperparameters)
        assert metrics.finite
    return before, *jax.device_get((state.params, metrics.sums, metrics.gradient_norm))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all", "context"])
def test_every_mesh_makes_the_update_of_one_device(name):
    _, params, sums, norm = two_updates(name)
    before, expected_params, expected_sums, expected_norm = two_updates("single")
    np.testing.assert_allclose(sums[:4], expected_sums[:4], rtol=1e-5)
    assert norm == pytest.approx(expected_norm, rel=1e-4)
    for found, expected, first in zip(*map(jax.tree.leaves, (params, expected_params, before)), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)
        assert np.abs(expected - first).max() > 1e-3


@pytest.mark.slow
def test_data_parallel_devices_add_up_gradients_once_however_many_parts_a_batch_has():
    update = made_of(TransformerConfig(**SIZES, num_encoder_layers=1, num_decoder_layers=1), MESHES["data"], parts=4)
    found = collectives_of(update.lower(batch_shape(32, WIDTH, WIDTH)).compile().as_text(), 8)
    parameters = bytes_on_a_device(update.state_shapes.params)
    assert {each.kind for each in found} == {"all-reduce"}
    assert parameters <= sum(each.times * each.bytes for each in found) <= parameters + 100


def test_fsdp_gathers_no_more_than_a_parameter_at_a_time_and_keeps_the_rows_where_they_are():
    found = exchanged("all")
    kinds = {each.kind for each in found}
    assert "all-gather" in kinds
    assert largest(found, "all-gather") <= TABLE_BYTES
    # Rows of hidden states of all devices together; none of them is sent to another device but for
    # the embeddings.
    hidden = 4 * 16 * WIDTH * D_MODEL
    assert sum(each.times for each in found if each.kind == "all-gather" and each.bytes == hidden) == 0
    assert sum(each.times for each in found if each.kind == "all-to-all") <= 4


@pytest.mark.slow
def test_tensor_parallel_devices_gather_no_parameter():
    found, parts = exchanged("data and tensor"), MESHES["data and tensor"].tensor
    hidden = 4 * 16 * WIDTH * D_MODEL // MESHES["data and tensor"].data
    # Positions are split between sublayers where that leaves enough on each device, and gathered
    # for their products.
    gathered = {each.bytes for each in found if each.kind == "all-gather" and each.bytes >= MATRIX_BYTES // parts}
    assert gathered == ({hidden} if WIDTH // parts >= MIN_POSITIONS else set())
    assert "all-to-all" not in {each.kind for each in found}
    # Two sums a layer of the encoder and three of the decoder, there and back.
    sums = sum(
        each.times * (each.bytes // hidden) for each in found if each.kind == "all-reduce" and each.bytes >= hidden
    )
    assert sums >= 2 * (2 + 3) * LAYERS


@pytest.mark.parametrize("name", ["all", pytest.param("context", marks=pytest.mark.slow)])
def test_memory_of_the_state_falls_as_parameters_are_split(name):
    mesh, single = MESHES[name], update_on(MESHES["single"]).state_shapes
    memory = program_of(name).memory_analysis()
    arguments = memory.argument_size_in_bytes
    batch_bytes = 6 * 4 * 16 * WIDTH // (mesh.data * mesh.fsdp)
    whole = bytes_on_a_device((single.params, single.optimizer_state))
    split = (arguments - batch_bytes) / whole
    # Biases and norms are too small to be worth splitting.
    assert split == pytest.approx(1 / (mesh.fsdp * mesh.tensor), abs=0.08)
    # The new state is written over the old one, which is donated: it is never held twice.
    assert memory.alias_size_in_bytes == pytest.approx(arguments - batch_bytes, rel=0.02)


@pytest.mark.slow
def test_recurrent_models_exchange_nothing_inside_their_loops():
    """A collective at every step of time would cost more than the step."""
    model = RnnConfig(d_embedding=16, d_hidden=16, d_attention=16, attention="additive", wiring="bahdanau")
    update = made_of(model, MeshConfig(data=2, fsdp=2, tensor=2))
    program = update.lower(batch_shape(16, WIDTH, WIDTH)).compile()
    found = collectives_of(program.as_text(), 8)
    assert {"all-gather", "all-reduce"} <= {each.kind for each in found}
    # The chunks of the loss, of which there is one here, are a loop too.
    assert max(each.times for each in found) == 1
