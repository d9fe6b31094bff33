"""Steps compiled ahead: the same step, compiled once a shape, the first one first."""

from contextlib import closing

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
def programs():
    return {}


@pytest.fixture
def compiled(traced, programs):
    def step(state, batch, numbers):
        traced.append(batch.shape[1])
        total = batch.sum()
        params = jax.tree.map(lambda leaf: leaf + total, state.params)
        metrics = StepMetrics(LossSums(total, total, total, total), total, jnp.isfinite(total))
        return state._replace(step=state.step + 1, params=params), metrics

    shapes = [jax.ShapeDtypeStruct((1, width), jnp.float32) for width in WIDTHS]
    jitted = compile_train_step(step, state(), MESH)
    with closing(CompiledStep(lambda batch: jitted.lower(state(), batch, None), shapes, programs)) as compiled:
        yield compiled


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
    assert not compiled.is_announced(batch)
    assert all(compiled.is_announced(np.ones((1, width), np.float32)) for width in WIDTHS)
    after, _ = compiled.for_batch(batch)(state(), batch, None)
    assert float(after.params["norm"]["scale"]) == 1 + 7
    assert compiled.is_announced(batch)
    assert 7 in traced


def test_what_one_training_compiled_the_next_finds_and_what_it_gave_up_is_compiled_then(compiled, traced, programs):
    batches = {width: put_batch(np.ones((1, width), np.float32), MESH) for width in (*WIDTHS, 7)}
    for width in (2, 7):
        compiled.for_batch(batches[width])
    compiled.close()
    compiled._pool.shutdown(wait=True)
    assert not any(future.cancelled() for future in programs.values())
    before = list(traced)
    shapes = [jax.ShapeDtypeStruct((1, width), jnp.float32) for width in WIDTHS]
    with closing(CompiledStep(compiled._lower, shapes, programs)) as again:
        assert again.is_ready(batches[2])
        assert again.is_announced(batches[7])
        for width in (2, 3, 5, 7):
            again.for_batch(batches[width])(state(), batches[width], None)
    assert sorted(traced) == [2, 3, 5, 7]
    assert traced[: len(before)] == before


def test_a_program_that_failed_is_tried_again_by_the_next_training(programs):
    def fail(batch):
        raise MemoryError

    batch = jax.ShapeDtypeStruct((1, 2), jnp.float32)
    with closing(CompiledStep(fail, [batch], programs)) as failing, pytest.raises(MemoryError):
        failing.for_batch(batch)
    assert programs == {}
