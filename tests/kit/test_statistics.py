"""Statistics of the kit equal direct computation, for any micro-batches and devices."""

from dataclasses import asdict
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ConfigError, MeshConfig, from_dict, hyperparameters_of
from transformer_jax.kit.gradient_noise import GradientNoise
from transformer_jax.models.inspection import Activations, AttentionActivations, attention_maps
from transformer_jax.registry.plugins import register, registered
from transformer_jax.runs.run import Counters
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows
from transformer_jax.training.statistics import Statistic
from transformer_jax.training.step import StepMetrics
from transformer_jax.training.update import Update

NAMES = "attention_entropy,largest_logit,parameter_norms,gradient_norms,activation_norms,gradient_noise"
IDS = np.random.default_rng(0).integers(4, 60, (8, 6))
IDS[::3, 4:] = 0
BATCH = Tokens.from_ids(IDS.astype(np.int32))
LAYER = "decoder_layers_0"
ATTENTION = f"{LAYER}/self_attention"


@cache
def metrics_of(devices: int):
    """The metrics of an update by path, the parameters before it, and the objective."""
    model = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0, "embedding_dropout": 0.0}
    model |= {"normalization": "post", "scan_layers": True, "rematerialize": "full"}
    values = {
        "task": "language_model",
        "tokenizer": {"kind": "byte"},
        "batching": {"accumulation_steps": 2},
        "model": model,
        "training": {"watch": NAMES},
    }
    config, mesh = from_dict(values), make_mesh(MeshConfig(data=devices), jax.devices()[:devices])
    objective = objective_of(config, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    state = update.initial_state(0)
    params = jax.device_get(state.params)
    put = put_rows(BATCH, mesh), put_hyperparameters(hyperparameters_of(config), mesh)
    _, metrics = update.jitted(state, *put)
    counters = Counters()
    counters.add(jax.device_get(metrics))
    means = {name.removeprefix("train/"): value for name, value in counters.take_means().items()}
    return means | {"gradient_norm": float(metrics.gradient_norm)}, params, objective


def test_statistics_are_their_definitions():
    result, params, objective = metrics_of(1)
    weights = np.asarray(attention_maps(objective.model, params, BATCH)[ATTENTION], np.float64)
    keys = np.tile(1 + np.arange(6), (8, 2, 1)) * (IDS != 0)[:, None]
    counts = keys > 1
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), -1)[counts] / np.log(keys[counts])
    assert result[f"attention_entropy/{ATTENTION}"] == pytest.approx(entropy.mean(), rel=1e-5)
    # With two visible keys the ratio of the weights is the exponential of the difference of the
    # scores.
    ratios = np.abs(np.log(weights[:, :, 1, 0] / weights[:, :, 1, 1]))
    assert ratios.max() < 2 * result[f"largest_logit/{ATTENTION}"] < 20
    norm = np.sqrt(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(params[LAYER])))
    assert result[f"parameter_norms/{LAYER}"] == pytest.approx(norm, rel=1e-5)
    squares = sum(value**2 for name, value in result.items() if name.startswith("gradient_norms/"))
    assert np.sqrt(squares) == pytest.approx(result["gradient_norm"], rel=1e-5)
    assert result[f"activation_norms/{LAYER}"] == pytest.approx(1.0, rel=1e-3), "outputs of a layer norm"


def test_the_entropy_is_of_shares_where_weights_do_not_sum_to_one():
    weights = jnp.array([[[[0.01, 0.01, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]]])
    every = {"a": weights, "negative": weights - 0.1}
    visible = jnp.array([[[True, True, False]] * 3])
    every = {name: AttentionActivations(jnp.zeros_like(item), item, visible) for name, item in every.items()}
    result = registered("statistic")["attention_entropy"](None).of_pass(Activations({}, every))
    assert [float(item) for item in result["a"]] == pytest.approx([1.0, 2.0]), "uniform, one key, none"
    assert result["negative"][1] == 0, "not in the log"


@pytest.mark.slow
def test_statistics_do_not_depend_on_the_devices():
    one, two = (dict(metrics_of(devices)[0]) for devices in (1, 2))
    # Devices split a batch into other micro-batches.
    assert np.isfinite([item.pop("gradient_noise") for item in (one, two)]).all()
    assert two == pytest.approx(one, rel=1e-4)


def test_the_noise_scale_is_that_of_its_gradients():
    statistic, draw = GradientNoise(None), np.random.default_rng(0)
    mean, sizes, total = np.full(50, 0.3), np.array([100.0, 200, 300, 50]), np.zeros(2)
    for _ in range(200):
        # Sums of b gradients, each with mean 0.3 and variance 4 in 50 dimensions.
        sums = [size * mean + np.sqrt(size) * 2 * draw.normal(size=50) for size in sizes]
        joined = sum(statistic.of_micro_batch(item, size)[""] for item, size in zip(sums, sizes, strict=True))
        tokens = sizes.sum()
        total += np.asarray(statistic.of_update(None, sum(sums) / tokens, tokens, {"": joined})[""])
    assert total[0] / total[1] == pytest.approx(50 * 4 / (50 * 0.3**2), rel=0.1)
    with pytest.raises(ConfigError, match="accumulation_steps"):
        statistic.of_update(None, np.ones(3), 1.0, {})


def test_a_statistic_of_a_user_is_joined_over_updates_and_resumed():
    @register("statistic", "mean_and_largest")
    class Own(Statistic):
        pass

    @register("statistic", "own_maximum")
    class Largest(Statistic):
        is_maximum = True

    counters = Counters()
    for value in (1.0, 5.0, 3.0):
        one = {"": jnp.array([value, 2.0])}
        sums = LossSums.zero()._replace(statistics={"mean_and_largest": one, "own_maximum": {"layer": one[""]}})
        counters.add(StepMetrics(sums, jnp.zeros(()), jnp.array(True)))
        counters = Counters(**asdict(counters))
    result = counters.take_means()
    assert result["train/mean_and_largest"] == 1.5 and result["train/own_maximum/layer"] == 2.5
    assert not counters.statistics
