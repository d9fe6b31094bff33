"""Steps compiled ahead: the same step, compiled once a shape, the first one first."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import MeshConfig
from transformer_jax.training.compiled_step import CompiledStep
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh, put_batch
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import StepMetrics, compile_train_step

MESH = make_mesh(MeshConfig(data=1), jax.devices()[:1])
WIDTHS = 2, 3, 5


def state() -> TrainState:
    return TrainState(jnp.zeros((), jnp.int32), {"norm": {"scale": jnp.ones(())}}, (), jnp.zeros(2, jnp.uint32))


@pytest.fixture
def traced():
    return []


@pytest.fixture
def compiled(traced):
    def step(state, batch, hyperparameters):
        traced.append(batch.shape[1])
        total = batch.sum()
        params = jax.tree.map(lambda leaf: leaf + total, state.params)
        metrics = StepMetrics(LossSums(total, total, total, total), total, jnp.isfinite(total))
        return state._replace(step=state.step + 1, params=params), metrics

    shapes = [jax.ShapeDtypeStruct((1, width), jnp.float32) for width in WIDTHS]
    jitted = compile_train_step(step, state(), MESH)
    compiled = CompiledStep(lambda batch: jitted.lower(state(), batch, None), shapes)
    yield compiled
    compiled.close()


def test_each_shape_is_compiled_once_and_the_first_before_the_others(compiled, traced):
    after = state()
    for width in (2, 5, 3, 5, 2):
        batch = put_batch(np.ones((1, width), np.float32), MESH)
        after, _ = compiled.for_batch(batch)(after, batch, None)
        assert traced[0] == 2
    assert sorted(traced) == [2, 3, 5]
    assert float(after.params["norm"]["scale"]) == 1 + 2 + 5 + 3 + 5 + 2
    assert int(after.step) == 5


def test_a_shape_that_was_not_announced_is_known_as_such_and_compiled(compiled, traced):
    batch = put_batch(np.ones((1, 7), np.float32), MESH)
    assert not compiled.is_planned(batch)
    assert all(compiled.is_planned(np.ones((1, width), np.float32)) for width in WIDTHS)
    after, _ = compiled.for_batch(batch)(state(), batch, None)
    assert float(after.params["norm"]["scale"]) == 1 + 7
    assert compiled.is_planned(batch)
    assert 7 in traced
