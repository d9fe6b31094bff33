"""Learning rates and update rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import OptimizerConfig
from transformer_jax.training.optimizers import RULES, make_optimizer
from transformer_jax.training.schedules import SCHEDULES, make_schedule


def test_the_papers_schedule():
    schedule = make_schedule(OptimizerConfig(), d_model=512, num_updates=100_000)
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        assert float(schedule(step)) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-5)


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"noam"}))
def test_other_schedules_peak_where_they_say(name):
    config = OptimizerConfig(schedule=name, learning_rate=3e-3, warmup_updates=100)
    rates = np.array([float(make_schedule(config, 512, 1000)(step)) for step in range(1, 1001, 11)])
    assert float(make_schedule(config, 512, 1000)(100)) == pytest.approx(3e-3)
    assert rates.max() <= 3e-3 * 1.0001
    assert (np.diff(rates[:9]) > 0).all()


def test_inverse_square_root_is_noam_with_its_peak_stated():
    peak = 512**-0.5 * 4000**-0.5
    config = OptimizerConfig(schedule="inverse_square_root", learning_rate=peak)
    for step in (1, 4000, 50_000):
        noam = float(make_schedule(OptimizerConfig(), 512, 1)(step))
        assert float(make_schedule(config, 512, 1)(step)) == pytest.approx(noam, rel=1e-5)


def test_adam_makes_the_papers_first_step():
    config = OptimizerConfig()
    optimizer = make_optimizer(config, lambda step: jnp.where(step == 1, 0.5, jnp.nan))
    params = {"w": jnp.ones((2,))}
    updates, _ = optimizer.update({"w": jnp.array([3.0, -0.1])}, optimizer.init(params), params)
    # After bias correction the first step is -rate * g / (|g| + eps).
    np.testing.assert_allclose(updates["w"], [-0.5, 0.5], rtol=1e-5)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_descends(name):
    config = OptimizerConfig(name=name, weight_decay=0.0 if name == "adam" else 0.01, clip_norm=1.0)
    optimizer = make_optimizer(config, lambda step: 0.05)
    params = {"w": jax.random.normal(jax.random.key(0), (4, 3)), "b": jnp.ones((3,))}

    def loss(params: dict) -> jax.Array:
        return jnp.sum(params["w"] ** 2) + jnp.sum(params["b"] ** 2)

    state, first = optimizer.init(params), loss(params)
    for _ in range(30):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        params = jax.tree.map(jnp.add, params, updates)
    assert float(loss(params)) < 0.5 * float(first)


def test_weight_decay_leaves_biases_alone():
    optimizer = make_optimizer(OptimizerConfig(name="adamw", weight_decay=0.1), lambda step: 1.0)
    params = {"w": jnp.ones((2, 2)), "b": jnp.ones((2,))}
    updates, _ = optimizer.update(jax.tree.map(jnp.zeros_like, params), optimizer.init(params), params)
    np.testing.assert_allclose(updates["w"], -0.1, rtol=1e-5)
    np.testing.assert_array_equal(updates["b"], 0.0)
