"""Learning rates and update rules."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer_jax.config import (
    ExperimentConfig,
    Hyperparameters,
    OptimizerConfig,
    TrainingConfig,
    hyperparameters_of,
)
from transformer_jax.training.optimizers import RULES, make_optimizer
from transformer_jax.training.schedules import SCHEDULES, Schedule, make_schedule

GRADIENTS = np.array([[3.0, -0.1], [-1.0, 0.2], [0.5, 0.4]], np.float32)


def hyperparameters(num_updates: int = 100_000, **optimizer: object) -> Hyperparameters:
    training = TrainingConfig(num_updates=num_updates)
    return hyperparameters_of(ExperimentConfig(optimizer=OptimizerConfig(**optimizer), training=training))


def optimizer_of(name: str, schedule: Schedule, **settings: object) -> optax.GradientTransformation:
    return make_optimizer(name, hyperparameters(name=name, **settings), schedule)


def test_the_papers_schedule():
    schedule = make_schedule("noam", hyperparameters(), d_model=512)
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        assert float(schedule(step)) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-5)


@pytest.mark.parametrize("name", ["cosine", "constant"])
def test_schedules_that_are_told_their_numbers_are_optaxs(name):
    peak, warmup, end = 3e-3, 100, 1000
    expected = {
        "cosine": optax.warmup_cosine_decay_schedule(0.0, peak, warmup, end),
        "constant": optax.linear_schedule(0.0, peak, warmup),
    }[name]
    steps = jnp.arange(1, end + 50)
    told = hyperparameters(end, learning_rate=peak, warmup_updates=warmup)
    found = jax.jit(lambda hyperparameters: make_schedule(name, hyperparameters, 512)(steps))(told)
    np.testing.assert_allclose(found, expected(steps), atol=1e-6 * peak)


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"noam"}))
def test_other_schedules_peak_where_they_say(name):
    schedule = make_schedule(name, hyperparameters(1000, learning_rate=3e-3, warmup_updates=100), 512)
    rates = np.array([float(schedule(step)) for step in range(1, 1001, 11)])
    assert float(schedule(100)) == pytest.approx(3e-3)
    assert rates.max() <= 3e-3 * 1.0001
    assert (np.diff(rates[:9]) > 0).all()


def test_inverse_square_root_is_noam_with_its_peak_stated():
    peak = 512**-0.5 * 4000**-0.5
    schedule = make_schedule("inverse_square_root", hyperparameters(learning_rate=peak), 512)
    for step in (1, 4000, 50_000):
        noam = float(make_schedule("noam", hyperparameters(), 512)(step))
        assert float(schedule(step)) == pytest.approx(noam, rel=1e-5)


def test_adam_makes_the_papers_first_step():
    optimizer = optimizer_of("adam", lambda step: jnp.where(step == 1, 0.5, jnp.nan))
    params = {"w": jnp.ones((2,))}
    updates, _ = optimizer.update({"w": jnp.array([3.0, -0.1])}, optimizer.init(params), params)
    # After bias correction the first step is -rate * g / (|g| + eps).
    np.testing.assert_allclose(updates["w"], [-0.5, 0.5], rtol=1e-5)


@pytest.mark.parametrize(("b1", "b2", "epsilon"), [(0.9, 0.98, 1e-9), (0.0, 0.999, 1e-2), (0.5, 0.5, 1e-3)])
def test_adam_with_numbers_that_are_told(b1, b2, epsilon):
    """Kingma and Ba 2015, algorithm 1."""

    @jax.jit
    def walk(hyperparameters: Hyperparameters) -> list[jax.Array]:
        optimizer, params = make_optimizer("adam", hyperparameters, lambda step: 0.1), jnp.zeros(2)
        state, path = optimizer.init(params), []
        for gradient in GRADIENTS:
            updates, state = optimizer.update(jnp.asarray(gradient), state, params)
            params = params + updates
            path.append(params)
        return path

    mean, square, params = np.zeros(2), np.zeros(2), np.zeros(2)
    for step, (gradient, found) in enumerate(
        zip(GRADIENTS, walk(hyperparameters(b1=b1, b2=b2, epsilon=epsilon)), strict=True), 1
    ):
        mean, square = b1 * mean + (1 - b1) * gradient, b2 * square + (1 - b2) * gradient**2
        params = params - 0.1 * mean / (1 - b1**step) / (np.sqrt(square / (1 - b2**step)) + epsilon)
        np.testing.assert_allclose(found, params, rtol=3e-5)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_descends(name):
    decay = 0.01 if name in ("adamw", "adafactor") else 0.0
    # The steps of AdaGrad shrink from the first on.
    rate = 0.5 if name == "adagrad" else 0.05
    optimizer = optimizer_of(name, lambda step: rate, weight_decay=decay, clip_norm=1.0)
    params = {"w": jax.random.normal(jax.random.key(0), (4, 3)), "b": jnp.ones((3,))}

    def loss(params: dict) -> jax.Array:
        return jnp.sum(params["w"] ** 2) + jnp.sum(params["b"] ** 2)

    state, first = optimizer.init(params), loss(params)
    for _ in range(30):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        params = jax.tree.map(jnp.add, params, updates)
    assert float(loss(params)) < 0.5 * float(first)


def test_weight_decay_leaves_biases_alone():
    optimizer = optimizer_of("adamw", lambda step: 1.0, weight_decay=0.1)
    params = {"w": jnp.ones((2, 2)), "b": jnp.ones((2,))}
    updates, _ = optimizer.update(jax.tree.map(jnp.zeros_like, params), optimizer.init(params), params)
    np.testing.assert_allclose(updates["w"], -0.1, rtol=1e-5)
    np.testing.assert_array_equal(updates["b"], 0.0)
