"""Learning rates and update rules."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    Hyperparameters,
    OptimizerConfig,
    TrainingConfig,
    from_dict,
    hyperparameters_of,
    scheduled_hyperparameters_of,
)
from transformer_jax.registry.index import own_parts
from transformer_jax.registry.plugins import _REGISTERED
from transformer_jax.training.optimizers import make_optimizer
from transformer_jax.training.schedules import Schedule, make_schedule, of_next_update, remark_on_average

GRADIENTS = np.array([[3.0, -0.1], [-1.0, 0.2], [0.5, 0.4]], np.float32)

NAMES = [name for (kind, name), part in own_parts().items() if kind == "schedule" and part.owner.is_core]


def hyperparameters(num_updates: int = 100_000, **optimizer: object) -> Hyperparameters:
    training = TrainingConfig(num_updates=num_updates)
    return hyperparameters_of(ExperimentConfig(optimizer=OptimizerConfig(**optimizer), training=training))


def optimizer_of(name: str, schedule: Schedule, **settings: object) -> optax.GradientTransformation:
    return make_optimizer(name, hyperparameters(name=name, **settings), schedule, 0)


PEAK, WARMUP, END = 3e-3, 100, 1000
STEPS = np.arange(1, END + 50)
EXPECTED = {
    "noam": PEAK * 512**-0.5 * np.minimum(STEPS**-0.5, STEPS * WARMUP**-1.5),
    "inverse_square_root": PEAK * np.minimum(STEPS / WARMUP, (WARMUP / STEPS) ** 0.5),
    "cosine": optax.warmup_cosine_decay_schedule(0.0, PEAK, WARMUP, END)(STEPS),
    "linear": PEAK * np.minimum(STEPS / WARMUP, np.maximum((END - STEPS) / (END - WARMUP), 1e-4)),
    "constant": optax.linear_schedule(0.0, PEAK, WARMUP)(STEPS),
}


@pytest.mark.parametrize("name", NAMES)
def test_schedules_are_their_formulas_with_traced_hyperparameters_and_on_the_host(name):
    told = hyperparameters(END, learning_rate=PEAK, warmup_updates=WARMUP)
    found = jax.jit(lambda hyperparameters: make_schedule(name, hyperparameters, 512)(jnp.asarray(STEPS)))(told)
    np.testing.assert_allclose(found, EXPECTED[name], atol=1e-6 * PEAK)
    on_host = [make_schedule(name, told, 512)(int(step)) for step in STEPS[::100]]
    assert not any(isinstance(rate, jax.Array) for rate in on_host)
    np.testing.assert_allclose(on_host, EXPECTED[name][::100], atol=1e-6 * PEAK)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("linear(0,0.4)", [0.0, 0.1, 0.2, 0.3, 0.4, 0.4]),
        ("linear(0.4,0,2,4)", [0.4, 0.4, 0.2, 0.0, 0.0, 0.0]),
        ("cosine(0,0.4)", [0.0, 0.2 - 0.2 * 0.5**0.5, 0.2, 0.2 + 0.2 * 0.5**0.5, 0.4, 0.4]),
        ("step(0.1,0.3,3)", [0.1, 0.1, 0.3, 0.3, 0.3, 0.3]),
    ],
)
def test_schedules_of_settings_have_both_ends_in_the_step_and_on_the_host(text, values):
    config = from_dict(
        {"model": {"dropout": text}, "optimizer": {"schedule": "constant"}, "training": {"num_updates": 5}}
    )
    ramps = scheduled_hyperparameters_of(config)
    in_step = jax.jit(lambda step: of_next_update(ramps, step).rates.dropout)
    found = [float(in_step(jnp.int32(step))) for step in range(6)]
    np.testing.assert_allclose(found, values, atol=1e-7)
    assert [found[0], found[4]] == [np.float32(values[0]), np.float32(values[4])], "both ends are exact"
    np.testing.assert_allclose([of_next_update(ramps, step).rates.dropout for step in range(6)], values, atol=1e-7)
    # A shortened run has the whole schedule, unless its updates are fixed.
    shortened = of_next_update(ramps._replace(num_updates=3.0), 2).rates.dropout
    assert shortened == pytest.approx(0.4 if text.count(",") == 1 else values[2])
    plain = hyperparameters_of(config)
    assert of_next_update(plain, 0) == plain


def test_adam_with_numbers_that_are_told():
    """Kingma and Ba 2015, algorithm 1."""
    b1, b2, epsilon = 0.5, 0.7, 1e-2

    @jax.jit
    def walk(hyperparameters: Hyperparameters) -> list[jax.Array]:
        optimizer, params = make_optimizer("adam", hyperparameters, lambda step: 0.1, 0), jnp.zeros(2)
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


@pytest.fixture
def plugin(monkeypatch):
    """An optimizer of a plugin, ``nothing``."""

    def nothing(hyperparameters: Hyperparameters) -> list:
        assert hyperparameters.weight_decay is None
        return [optax.scale(1.0)]

    monkeypatch.setitem(_REGISTERED["optimizer"], "nothing", nothing)


@pytest.mark.parametrize("name", ["adamw", "adafactor", "nothing"])
def test_weight_decay_is_for_kernels_and_embeddings_whatever_their_axes(name, plugin):
    decayed = {"attention/query": (2, 3, 2), "embedding/table": (4, 2), "gates/input_kernel": (2, 4, 2)}
    decayed |= {"self_attention/changes_latent/latent_kernel": (4, 2), "positions/table": (4, 2)}
    decayed |= {"self_attention_residual/connection": (4, 6)}
    left = {"positions/biases": (4, 2), "self_attention/changes_talking_heads/mix_scores": (2, 2)}
    left |= {"changes_kerple/rates": (2, 2), "self_attention_residual/alpha": (4, 5)}
    left |= {"attention/query_bias": (3, 2), "gates/input_bias": (4, 2), "projection/bias": (4, 1), "norm/scale": (2,)}
    shapes = decayed | left | {"score/sharpness": (3,)}
    params, zeros = ({path: make(shape, np.float32) for path, shape in shapes.items()} for make in (np.ones, np.zeros))
    optimizer = optimizer_of(name, lambda step: 1.0, weight_decay=0.1)
    updates = jax.jit(lambda params: optimizer.update(zeros, optimizer.init(params), params)[0])(params)
    for path, found in updates.items():
        np.testing.assert_allclose(found, -0.1 if path in decayed else 0.0, rtol=1e-5, err_msg=path)


def test_weight_decay_is_refused_where_a_rule_has_none(plugin):
    with pytest.raises(ConfigError, match=r"optimizer.weight_decay: sgd has none; use optimizer.name=adamw"):
        OptimizerConfig(name="sgd", weight_decay=0.1)
    assert OptimizerConfig(name="nothing", weight_decay=0.1).weight_decay == 0.1


def test_adagrad_adapts_to_gradients_that_are_means_over_tokens():
    """Duchi et al. 2011, figure 1: steps shrink with the root of the sum of squares, however small
    they are."""
    optimizer = optimizer_of("adagrad", lambda step: 1.0)
    params = {"w": jnp.zeros(2)}
    state, gradient, update = optimizer.init(params), {"w": jnp.array([1e-4, -1e-6])}, jax.jit(optimizer.update)
    for count in range(1, 10):
        updates, state = update(gradient, state, params)
        np.testing.assert_allclose(updates["w"], np.array([-1.0, 1.0]) * count**-0.5, rtol=1e-3)


def test_an_average_is_advised_against_where_the_rate_fell():
    for schedule, steps, is_told in (
        ("wsd", (600, 700, 800), False),
        ("wsd", (700, 850, 1000), True),
        ("cosine", (200, 600, 1000), True),
        ("noam", (200, 600, 1000), False),
        ("wsd", (1000,), False),
    ):
        config = ExperimentConfig(
            optimizer=OptimizerConfig(schedule=schedule, learning_rate=0.1, warmup_updates=100),
            training=TrainingConfig(num_updates=1000),
        )
        remark = remark_on_average(config, steps, {})
        assert bool(remark) == is_told
        longer = replace(config, training=replace(config.training, num_updates=4000))
        shortened = remark_on_average(longer, steps, {"counters": {"num_updates": 1000}})
        assert shortened == remark
        assert not is_told or f"checkpoint {steps[-1]} alone may be better" in remark
