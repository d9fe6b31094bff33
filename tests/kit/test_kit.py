"""Parts of the kit are the functions of their papers; conform trains and decodes with them."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec
from optax.contrib import MuonDimensionNumbers

from transformer_jax.config import ExperimentConfig, MeshConfig, from_dict, hyperparameters_of
from transformer_jax.kit.mixture_of_experts import ExpertsSettings, expert_product
from transformer_jax.kit.muon import matrices
from transformer_jax.kit.soap import SoapSettings
from transformer_jax.layers.site import Site
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.precision import FLOAT32, POLICIES
from transformer_jax.registry.plugins import register, registered
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.losses import LossSums
from transformer_jax.training.schedules import make_schedule
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows, state_shardings
from transformer_jax.training.state import count_parameters
from transformer_jax.training.update import Update

SITE = Site("decoder", "self", 2, is_causal=True)
BATCH = Tokens.from_ids(np.random.default_rng(0).integers(4, 60, (8, 12)).astype(np.int32))


def language_model(parts: dict | None = None, **settings: object) -> ExperimentConfig:
    """A byte model of one layer, with settings by dotted key and settings of parts."""
    values: dict = {
        "task": "language_model",
        "tokenizer": {"kind": "byte"},
        "model": {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_layers": 1, "dropout": 0.0},
        "optimizer": {"schedule": "constant", "learning_rate": 0.02, "warmup_updates": 1},
        "training": {"num_updates": 3},
        "parts": parts or {},
    }
    for key, value in settings.items():
        block, _, name = key.partition(".")
        values[block] = {**values.get(block, {}), name: value}
    return from_dict(values)


def initial_params(key: jax.Array) -> dict:
    kernel = jax.random.normal(key, (3, 2))
    return {"embedding": {"table": kernel}, "norm": {"scale": jnp.ones(2)}}


def loss(params: dict, batch: Tokens, key: jax.Array, hyperparameters: object) -> LossSums:
    hidden = params["embedding"]["table"] * params["norm"]["scale"][None]
    return LossSums.zero()._replace(loss=jnp.sum(jnp.sin(hidden)) * batch.ids.shape[0], tokens=jnp.ones(()))


@cache
def update_of(config: ExperimentConfig) -> Update:
    return Update(config, loss, initial_params, make_mesh(MeshConfig(data=1), jax.devices()[:1]))


def states_of(config: ExperimentConfig, count: int) -> list:
    """The states before and after each of ``count`` updates with one batch."""
    update = update_of(config)
    batch, hyperparameters = put_rows(BATCH, update.mesh), put_hyperparameters(hyperparameters_of(config), update.mesh)
    states = [jax.device_get(update.initial_state(0))]
    for _ in range(count):
        states.append(jax.device_get(update.jitted(jax.device_put(states[-1]), batch, hyperparameters)[0]))
    return states


def flat(params) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def test_rmsnorm_is_its_equation():
    norm = registered("norm")["rmsnorm"](None, language_model().model, None, precision=FLOAT32)
    x, scale = np.random.default_rng(0).normal(size=(2, 3, 8)), np.linspace(0.5, 2.0, 8)
    actual = norm.apply({"params": {"scale": jnp.asarray(scale, jnp.float32)}}, jnp.asarray(x, jnp.float32))
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_rezero_begins_as_the_identity_and_has_no_norms():
    config = language_model(**{"model.normalization": "rezero"})
    model = build_decoder_only(config.model, 60)
    params = init_decoder_only(model, jax.random.key(0))
    assert not any("norm" in str(path) for path, _ in jax.tree_util.tree_leaves_with_path(params))
    logits, bare = (
        jax.jit(partial(item.apply, train=False))({"params": params}, BATCH)
        for item in (model, model.clone(num_layers=0))
    )
    np.testing.assert_allclose(logits, bare, atol=1e-6)


def test_deepnorm_scales_what_its_figure_names():
    model, rule = language_model(**{"model.num_layers": 2}).model, registered("initialization")["deepnorm"]
    paths = {name: f"self_attention/{name}" for name in ("query", "key", "value", "output")}
    paths |= {name: f"feed_forward/{name}" for name in ("wide_kernel", "narrow_kernel", "wide_bias")}
    scaled = {name for name, path in paths.items() if rule(None, model, SITE, path) == (8 * 2) ** -0.25}
    assert scaled == {"value", "output", "wide_kernel", "narrow_kernel"}
    assert registered("residual")["deepnorm"].of(None, model, SITE, dropout=None).alpha == (2 * 2) ** 0.25


def soap_of(**settings: int) -> optax.GradientTransformation:
    (rule,) = registered("optimizer")["soap"](SoapSettings(**settings), hyperparameters_of(language_model()))
    return rule


def after_updates(rule: optax.GradientTransformation, gradient_of, params, count: int):
    """Parameters after each of ``count`` updates at the rate 0.1."""
    step, state, result = jax.jit(rule.update), rule.init(params), []
    for _ in range(count):
        updates, state = step(gradient_of(params), state)
        params = jax.tree.map(lambda leaf, update: leaf - 0.1 * update, params, updates)
        result.append(params)
    return result


def test_soap_is_algorithm_3_with_the_power_iteration_of_algorithm_4():
    generator, rate, every = np.random.default_rng(1), 0.1, 3
    gradients = generator.normal(size=(8, 4, 3)).astype(np.float32)
    mu, nu, kernel, used = np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 3)), hyperparameters_of(language_model())
    b1, b2, epsilon = float(used.b1), float(used.b2), float(used.epsilon)
    covariances, bases, expected = [np.zeros((4, 4)), np.zeros((3, 3))], [], []
    for number, gradient in enumerate(gradients.astype(np.float64)):
        if number:
            left, right = bases
            mu = b1 * mu + (1 - b1) * gradient
            nu = b2 * nu + (1 - b2) * (left.T @ gradient @ right) ** 2
            mean = left.T @ mu @ right / (1 - b1**number)
            kernel = kernel - rate * left @ (mean / (np.sqrt(nu / (1 - b2**number)) + epsilon)) @ right.T
        pairs = zip(covariances, (gradient @ gradient.T, gradient.T @ gradient), strict=True)
        covariances = [b2 * old + (1 - b2) * new for old, new in pairs]
        if number == 0:
            bases = [np.linalg.eigh(covariance)[1][:, ::-1] for covariance in covariances]
        elif number % every == 0:
            bases = [np.linalg.qr(covariance @ basis)[0] for covariance, basis in zip(covariances, bases, strict=True)]
        expected.append(kernel)
    rule, number = soap_of(precondition_every=every), iter(gradients)
    params = {"kernel": jnp.zeros((4, 3))}
    actual = after_updates(rule, lambda _: {"kernel": jnp.asarray(next(number))}, params, len(gradients))
    np.testing.assert_allclose([item["kernel"] for item in actual], expected, atol=2e-3)


AVERAGED = {
    "ema": language_model(parts={"ema": {"decay": 0.15}}, **{"optimizer.averaging": "ema"}),
    "schedule_free": language_model(**{"optimizer.averaging": "schedule_free", "optimizer.name": "sgd"}),
}


def test_ema_is_the_average_of_the_parameters():
    first, *states = states_of(AVERAGED["ema"], 3)
    expected = flat(first.params)
    for count, state in enumerate(states, 1):
        decay = min(0.15, (1 + count) / (10 + count))
        expected = decay * expected + (1 - decay) * flat(state.params)
    update = update_of(AVERAGED["ema"])
    actual = update.evaluation_params(states[-1])
    assert count_parameters(update.saved_shapes) == count_parameters((states[-1], actual)), "a checkpoint holds both"
    np.testing.assert_allclose(flat(actual), expected, atol=1e-6)
    assert float(np.abs(flat(states[-1].params) - expected).max()) > 1e-4


@pytest.mark.parametrize("name", AVERAGED)
def test_frozen_parameters_stay_where_others_are_averaged(name):
    config = language_model(**{"optimizer.averaging": name, "optimizer.freeze": "embedding"})
    first, last = states_of(config, 1)
    params = update_of(config).evaluation_params(last)
    np.testing.assert_array_equal(params["embedding"]["table"], first.params["embedding"]["table"])
    assert float(np.abs(flat(params) - flat(first.params)).max()) > 1e-3


def test_schedule_free_trains_between_the_iterate_and_its_average():
    state = states_of(AVERAGED["schedule_free"], 3)[-1]
    average = flat(update_of(AVERAGED["schedule_free"]).evaluation_params(state))
    expected = 0.9 * average + 0.1 * flat(state.optimizer_state.z)
    np.testing.assert_allclose(flat(state.params), expected, atol=1e-6)


@pytest.mark.parametrize("config", AVERAGED.values(), ids=AVERAGED)
def test_an_average_begins_at_parameters_of_another_run(config):
    update = update_of(config)
    state = update.initial_state(config.seed, lambda params: jax.tree.map(lambda leaf: 2 * leaf, params))
    np.testing.assert_allclose(flat(update.evaluation_params(state)), flat(state.params), rtol=1e-5, atol=1e-7)
    told = put_hyperparameters(hyperparameters_of(config), update.mesh)
    assert np.isfinite(flat(update.jitted(state, put_rows(BATCH, update.mesh), told)[0].params)).all()


def test_wsd_is_constant_between_warm_up_and_decay():
    config = from_dict({"optimizer": {"schedule": "wsd", "learning_rate": 2.0, "warmup_updates": 10}})
    hyperparameters = hyperparameters_of(config)._replace(num_updates=100.0)
    schedule = make_schedule("wsd", hyperparameters, 16, config.parts)
    rates = [float(schedule(step)) for step in (5, 10, 50, 80, 85, 100)]
    np.testing.assert_allclose(rates, [1.0, 2.0, 2.0, 2.0, 1.0, 0.0], atol=1e-6)


def test_experts_are_the_sum_of_the_chosen_layers_and_equal_loads_have_a_balance_of_one():
    config = language_model(
        parts={"mixture_of_experts": {"num_experts": 3}}, **{"model.feed_forward": "mixture_of_experts"}
    )
    make = registered("feed_forward")["mixture_of_experts"]
    layer = make(config.parts["mixture_of_experts"], config.model, None, dropout=None, precision=FLOAT32)
    inputs = np.random.default_rng(0).normal(size=(2, 5, 16)).astype(np.float32)
    params = jax.jit(partial(layer.init, train=False))(jax.random.key(1), inputs)["params"]
    apply = jax.jit(partial(layer.apply, train=False, mutable=["losses"]))
    actual, sown = apply({"params": params}, inputs)
    router, wide, narrow = (np.asarray(params[name]) for name in ("router_kernel", "experts_wide", "experts_narrow"))
    probabilities = np.exp(inputs @ router) / np.exp(inputs @ router).sum(-1, keepdims=True)
    kept = np.where(probabilities > probabilities.min(-1, keepdims=True), probabilities, 0.0)
    every = np.einsum("BLEF,EFD->BLED", np.maximum(np.einsum("BLD,EDF->BLEF", inputs, wide), 0.0), narrow)
    expected = np.einsum("BLE,BLED->BLD", kept / kept.sum(-1, keepdims=True), every)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    balance = 3 * ((kept > 0).mean((0, 1)) / 2 * probabilities.mean((0, 1))).sum()
    np.testing.assert_allclose(sown["losses"]["load_balance"][0], balance, rtol=1e-5)
    assert wide.std() == pytest.approx((2 / (16 + 32)) ** 0.5, rel=0.1)
    one = layer.clone(settings=ExpertsSettings(3, 1))
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(one.apply({"params": params}, inputs, train=False))))(params)
    assert np.abs(gradient["router_kernel"]).max() > 1e-3
    assert matrices(params)["experts_wide"] == MuonDimensionNumbers(1, 2)
    attention = {name: np.zeros((4, 2, 3)) for name in ("query", "output_gate", "gate_kernel", "rotary_query_kernel")}
    assert {*matrices({"attention": attention})["attention"].values()} == {MuonDimensionNumbers(0, (1, 2))}
    _, sown = apply({"params": params | {"router_kernel": jnp.zeros((16, 3))}}, inputs)
    assert float(sown["losses"]["load_balance"][0]) == pytest.approx(1.0)


def test_products_of_experts_follow_the_precision_forward_and_backward():
    def operands(jaxpr):
        for equation in jaxpr.eqns:
            if "ragged_dot" in equation.primitive.name:
                yield [invar.aval.dtype.name for invar in equation.invars[:2]]
            for inner in equation.params.values():
                yield from operands(inner.jaxpr) if hasattr(inner, "jaxpr") else ()

    def loss(precision, tokens, kernels):
        return jnp.sum(jnp.sin(expert_product(precision, ("float32", "float32"), tokens, kernels, sizes)))

    tokens, kernels = jax.random.normal(jax.random.key(0), (10, 4)), jax.random.normal(jax.random.key(1), (3, 4, 5))
    sizes = jnp.array([4, 0, 6])
    gradient = jax.grad(loss, (1, 2))
    plain = jax.grad(lambda *both: jnp.sum(jnp.sin(jax.lax.ragged_dot(*both, sizes))), (0, 1))
    both = (jax.jit(item)(tokens, kernels) for item in (partial(gradient, FLOAT32), plain))
    for actual, expected in zip(*both, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    gradient_program = jax.make_jaxpr(lambda *both: gradient(POLICIES["bfloat16"], *both))(tokens, kernels)
    assert list(operands(gradient_program.jaxpr)) == [["bfloat16", "bfloat16"]] * 3


def test_a_part_registers_the_sharding_of_its_parameters():
    mesh = make_mesh(MeshConfig(data=1, fsdp=2, tensor=2), jax.devices()[:4])
    shapes = {"feed_forward": {"routes": jax.ShapeDtypeStruct((4, 8), jnp.float32)}}
    register("sharding", r"feed_forward/routes$")(PartitionSpec("tensor", "fsdp"))
    assert state_shardings(shapes, mesh)["feed_forward"]["routes"].spec == PartitionSpec("tensor", "fsdp")
