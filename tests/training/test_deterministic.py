"""``training.deterministic`` reaches the compiler."""

import jax
import jax.numpy as jnp
import pytest

from transformer_jax.config import ExperimentConfig, MeshConfig, TrainingConfig
from transformer_jax.training import step, vectorized
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.update import Update
from transformer_jax.training.vectorized import VectorizedUpdate

UNKNOWN = {"xla_no_such_option": True}
BATCH = jax.ShapeDtypeStruct((8, 2), jnp.float32)


def lowered(*, deterministic: bool, vectorized: bool) -> jax.stages.Lowered:
    def loss(params, batch, key, hyperparameters) -> LossSums:
        total = jnp.sum(batch @ params["output_bias"])
        return LossSums(total, *(jnp.ones(()) for _ in LossSums._fields[1:]))

    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    config = ExperimentConfig(training=TrainingConfig(deterministic=deterministic))
    update = Update(config, loss, lambda key: {"output_bias": jax.random.normal(key, (2,))}, mesh)
    return (VectorizedUpdate(update, 2, jax.devices()[:1]) if vectorized else update).lower(BATCH)


@pytest.mark.parametrize("is_vectorized", [False, True])
def test_a_deterministic_step_is_compiled_with_its_options_and_another_is_not(is_vectorized, monkeypatch):
    for module in (step, vectorized):
        monkeypatch.setattr(module, "DETERMINISTIC", UNKNOWN)
    lowered(deterministic=False, vectorized=is_vectorized).compile()
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        lowered(deterministic=True, vectorized=is_vectorized).compile()


def test_the_options_are_ones_that_the_compiler_has():
    lowered(deterministic=True, vectorized=False).compile()
