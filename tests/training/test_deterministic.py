"""``training.deterministic`` and ``training.xla_options`` reach the compiler."""

import jax
import jax.numpy as jnp
import pytest

from transformer_jax.config import ConfigError, ExperimentConfig, MeshConfig, TrainingConfig
from transformer_jax.training import update
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.update import Update

BATCH = jax.ShapeDtypeStruct((8, 2), jnp.float32)


def lowered(**training: object) -> jax.stages.Lowered:
    def loss(params, batch, key, hyperparameters) -> LossSums:
        total = jnp.sum(batch @ params["output_bias"])
        return LossSums(total, *(jnp.ones(()) for _ in range(3)))

    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    config = ExperimentConfig(training=TrainingConfig(**training))
    update = Update(config, loss, lambda key: {"output_bias": jax.random.normal(key, (2,))}, mesh)
    return update.lower(BATCH)


def test_a_deterministic_step_is_compiled_with_its_options_and_another_is_not(monkeypatch):
    lowered(deterministic=True).compile()
    monkeypatch.setattr(update, "DETERMINISTIC", {"xla_no_such_option": True})
    lowered(deterministic=False).compile()
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        lowered(deterministic=True).compile()


def test_products_of_one_input_stay_apart_on_nvidia_gpus_unless_told(monkeypatch):
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    assert update.compiler_options(TrainingConfig(), mesh) is None
    monkeypatch.setattr(update, "is_nvidia_gpu", lambda device: True)
    name = "xla_gpu_dot_merger_threshold_mb"
    assert update.compiler_options(TrainingConfig(), mesh) == {name: "8"}
    assert update.compiler_options(TrainingConfig(xla_options=f"{name}=2"), mesh) == {name: "2"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("xla_no_such_option=1", "training.xla_options: No such compile option: 'xla_no_such_option' .XLA for cpu."),
        ("xla_cpu_enable_fast_math=maybe", "'maybe' is not a valid bool value"),
        ("xla_cpu_enable_fast_math", "'xla_cpu_enable_fast_math' is not name=value; give options as"),
    ],
)
def test_an_option_that_the_compiler_lacks_is_named(options, message):
    with pytest.raises(ConfigError, match=message):
        lowered(xla_options=options)
