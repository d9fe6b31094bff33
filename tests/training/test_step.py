"""The step: the same update whatever the devices and the accumulation."""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P
from jitted_model import random_params

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    MeshConfig,
    OptimizerConfig,
    TransformerConfig,
    hyperparameters_of,
)
from transformer_jax.config.optimization import require_rows_divide
from transformer_jax.models.build import build_model
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.training.losses import LossSums, label_smoothed_cross_entropy
from transformer_jax.training.optimizers import make_optimizer
from transformer_jax.training.projected_loss import LogitBlocks, projected_cross_entropy
from transformer_jax.training.sharding import (
    make_mesh,
    partition_of,
    put_batch,
    state_shardings,
    token_groups,
)
from transformer_jax.training.state import TrainState, create_state
from transformer_jax.training.step import make_train_step

VOCABULARY = 24
MODEL = build_model(
    TransformerConfig(
        num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=32, num_heads=4, dropout=0.0, embedding_dropout=0.0
    ),
    VOCABULARY,
    VOCABULARY,
)


def rows(seed: int, shortest: int) -> Tokens:
    """Eight rows of quite different lengths: a mean of per-device means would show."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(4, VOCABULARY, (8, 7)).astype(np.int32)
    lengths = generator.permutation(np.array([shortest, 1, 7, 2, 7, 1, 3, 7]))
    ids[np.arange(7)[None, :] >= lengths[:, None]] = 0
    return Tokens.from_ids(ids)


BATCH = Batch(rows(0, 5), rows(1, 6))


def loss(params: dict, batch: Batch, key: jax.Array, hyperparameters: None = None) -> LossSums:
    logits = MODEL.apply({"params": params}, *batch, train=True, rngs={"dropout": key})
    return label_smoothed_cross_entropy(logits, batch.target.ids, (batch.target.segments != 0).astype(jnp.float32), 0.1)


def grouped_loss(mesh: jax.sharding.Mesh) -> Callable[..., LossSums]:
    """The same as the translation task has it: without the logits, each device with a gradient sum
    of its own."""

    def loss(params: dict, batch: Batch, key: jax.Array, hyperparameters: None) -> LossSums:
        factors = MODEL.apply({"params": params}, *batch, train=True, rngs={"dropout": key}, method="factors")
        labels, weights = jnp.asarray(batch.target.ids), jnp.asarray(batch.target.segments != 0, jnp.float32)
        # Two columns of every row at a time.
        groups = token_groups(mesh)
        blocks = LogitBlocks(2 * len(labels) * VOCABULARY // groups[0])
        return projected_cross_entropy(*factors[:2], labels, weights, 0.1, blocks=blocks, groups=groups)

    return loss


def init(key: jax.Array) -> dict:
    return MODEL.init(key, *BATCH, train=False)["params"]


@cache
def first_state() -> TrainState:
    params = random_params(init, jax.random.key(0))
    return jax.jit(lambda: create_state(lambda key: params, ADAMW.init, 0))()


# A large epsilon, so that Adam does not blow rounding of tiny gradients up to whole steps.
CONFIG = ExperimentConfig(optimizer=OptimizerConfig("adamw", epsilon=1e-3))
ADAMW = make_optimizer("adamw", hyperparameters_of(CONFIG), lambda step: 0.1, 0)


def updated(num_devices: int, accumulation: int = 1, make_loss=grouped_loss):
    """The state after two updates, and their metrics."""
    mesh = make_mesh(MeshConfig(data=num_devices), jax.devices()[:num_devices])
    state = jax.device_put(first_state(), state_shardings(first_state(), mesh))
    step = jax.jit(make_train_step(make_loss(mesh), lambda *_: ADAMW, accumulation, mesh))
    state, first = step(state, put_batch(BATCH, mesh), None)
    state, second = step(state, put_batch(BATCH, mesh), None)
    return jax.device_get((state, first, second))


@pytest.fixture(scope="module")
def reference():
    """On one device, all at once, from the plain loss."""
    return updated(1, make_loss=lambda mesh: loss)


def test_the_same_update_on_two_devices_and_with_accumulation(reference):
    state, _, metrics = updated(2, accumulation=4)
    expected, _, expected_metrics = reference
    np.testing.assert_allclose(metrics.sums[:4], expected_metrics.sums[:4], rtol=1e-5)
    for found, wanted in zip(jax.tree.leaves(state.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_the_gradient_is_that_of_the_sum_over_the_number_of_tokens(reference):
    state = first_state()

    def mean_loss(params: dict) -> jax.Array:
        sums = loss(params, BATCH, jax.random.key(0))
        return sums.loss / sums.tokens

    gradient = jax.jit(jax.grad(mean_loss))(state.params)
    expected = sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(gradient)) ** 0.5
    _, metrics, _ = reference
    assert float(metrics.gradient_norm) == pytest.approx(expected, rel=1e-4)


def test_what_a_mesh_cannot_split_is_told():
    with pytest.raises(KeyError, match="params/strange/thing"):
        partition_of("params/strange/thing", (3, 4))
    with pytest.raises(ConfigError, match=r"mesh: data=3.* 8 devices .*mesh=data=-1,fsdp=1,.*mesh=data=-1,fsdp=2,"):
        make_mesh(MeshConfig(data=3))
    with pytest.raises(ConfigError, match="mesh.tensor: 8 does not divide a dimension of 4"):
        state_shardings(jax.eval_shape(init, jax.random.key(0)), make_mesh(MeshConfig(data=1, tensor=8)))
    with pytest.raises(ConfigError, match="batching.row_multiple: 8 is not a multiple of 16"):
        require_rows_divide(8, 2, make_mesh(MeshConfig()).shape)


def test_leaves_of_an_optimizer_are_split_as_the_parameters_of_their_path_and_shape():
    table, kernel, key = jnp.zeros((8, 4)), jnp.zeros((4, 6)), jnp.zeros(2)
    # Two tables of one shape, split differently.
    layer = {"wide_kernel": kernel, "wide_bias": key}
    params = {"embedding": {"table": table}, "positions": {"table": table}, "layers": layer}
    state = {
        "mean": params,
        "rows": {"embedding": {"table": jnp.zeros(8)}},
        "buffers": [kernel, table, key],
        "coefficients": key,
    }
    placed = state_shardings(TrainState(0 * key, params, state, key), make_mesh(MeshConfig(data=2, fsdp=2, tensor=2)))
    specs = jax.tree.map(lambda leaf: leaf.spec, placed)
    assert specs.params["embedding"]["table"] == P("tensor", "fsdp")
    assert specs.optimizer_state["mean"] == specs.params
    assert specs.optimizer_state["rows"]["embedding"]["table"] == specs.optimizer_state["coefficients"] == P()
    assert specs.optimizer_state["buffers"] == [P("fsdp", "tensor"), P(), P()]
    assert specs.key_data == P()


def test_the_rate_is_that_of_the_number_of_the_update_after_a_skipped_one_too():
    rates = {1: 0.5, 2: 0.25, 3: 0.125}
    config = hyperparameters_of(ExperimentConfig(optimizer=OptimizerConfig(name="sgd")))

    def optimizer(hyperparameters: None, step: jax.Array) -> optax.GradientTransformation:
        return make_optimizer("sgd", config, lambda update: jnp.array([jnp.nan, *rates.values()])[update], step)

    def sums(params: dict, scale: jax.Array, key: jax.Array, hyperparameters: None) -> LossSums:
        return LossSums.zero()._replace(loss=scale * params["w"], tokens=jnp.ones(()))

    step = jax.jit(make_train_step(sums, optimizer))
    state = create_state(lambda key: {"w": jnp.zeros(())}, optimizer(None, 0).init, 0)
    found = []
    for scale in (1.0, jnp.inf, 1.0):
        before = state.params["w"]
        state, metrics = step(state, jnp.float32(scale), None)
        assert metrics.finite == jnp.isfinite(scale)
        found.append(float(before - state.params["w"]))
    assert found == [rates[1], 0.0, rates[3]]
