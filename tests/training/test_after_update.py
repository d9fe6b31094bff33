"""Parts that change the parameters after an update: once a batch, whatever the micro-batches, the
devices and the layers."""

import math
from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, MeshConfig, from_dict, scheduled_hyperparameters_of, setting
from transformer_jax.registry.plugins import register
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows
from transformer_jax.training.state import TrainState
from transformer_jax.training.statistics import AfterUpdate, ratio
from transformer_jax.training.update import Update

IDS = np.random.default_rng(0).integers(4, 60, (8, 6)).astype(np.int32)
EXPERTS = {"feed_forward": "mixture_of_experts"}
BALANCED = {"mixture_of_experts": {"num_experts": 4, "balance_bias": True}, "balance_bias": {"rate": 0.01}}
NGPT = dict.fromkeys(("positions", "normalization", "feed_forward", "projection"), "ngpt")
BIAS = "decoder_layers_0/feed_forward/balance_bias"


@dataclass(frozen=True)
class CapSettings:
    cap: float = setting(1.0, "Cap.", program="traced")


class CappedHeads(AfterUpdate):
    """Divides the queries of each head by its largest score of the batch; the cap is the largest
    factor."""

    is_maximum = True
    reads_activations = True

    def of_pass(self, activations):
        largest = {path: jnp.max(jnp.abs(each.scores), axis=(0, 2, 3)) for path, each in activations.attention.items()}
        return {path: ratio(value, jnp.ones_like(value)) for path, value in largest.items()}

    def after_update(self, params, statistics):
        (path, (largest, _)), *_ = statistics.items()
        layer, attention = path.split("/")
        query = params[layer][attention]["query"] * jnp.minimum(self.settings.cap, 1 / largest)[None, :, None]
        return params | {layer: params[layer] | {attention: params[layer][attention] | {"query": query}}}


@pytest.fixture(scope="module", autouse=True)
def parts_of_this_file(plugins_of_this_file):
    register("after_update", "capped_heads", settings=CapSettings)(CappedHeads)
    register("after_update", "halved")(Halved)
    register("after_update", "wrong_tree")(WrongTree)


@cache
def update_of(case: str, devices: int = 1, fsdp: int = 1, **changed: object) -> tuple[Update, PyTree]:
    """Return updates by sgd and their hyperparameters; ``changed``: settings by ``block__name``."""
    cases = {
        "balance_bias": (EXPERTS, BALANCED | {"z_loss": {"weight": "linear(0,1e-2)"}}, {"loss_terms": "z_loss"}),
        "ngpt": (NGPT, {}, {}),
        "capped_heads": ({}, {"capped_heads": {"cap": "linear(0.5,0.1)"}}, {}),
    }
    model, parts, training = cases[case]
    parts = dict(parts)
    sizes = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0, "embedding_dropout": 0.0}
    values = {
        "task": "language_model",
        "tokenizer": {"kind": "byte", "vocabulary_size": 64},
        "model": sizes | model,
        "optimizer": {
            "name": "sgd",
            "schedule": "constant",
            "learning_rate": 0.5,
            "warmup_updates": 1,
            "after_update": case,
        },
        "training": {"num_updates": 4} | training,
        "parts": parts,
    }
    for key, value in changed.items():
        block, name = key.split("__")
        blocks = parts if block in parts else values
        blocks[block] = blocks.get(block, {}) | {name: value}
    config = from_dict(values)
    config.check_new_run()
    mesh = make_mesh(MeshConfig(data=devices // fsdp, fsdp=fsdp), jax.devices()[:devices])
    objective = objective_of(config, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    return update, put_hyperparameters(scheduled_hyperparameters_of(config), mesh)


@cache
def updated(case: str, count: int = 2, **changed: object) -> tuple[list[TrainState], list[LossSums]]:
    """Return the states from the initial one to the one after ``count`` updates with one batch, and
    the sums of each update; ``changed`` as in ``update_of``."""
    update, hyperparameters = update_of(case, **changed)
    state = update.initial_state(0)
    states, all_sums = [jax.device_get(state)], []
    for _ in range(count):
        state, metrics = update.jitted(state, put_rows(Tokens.from_ids(IDS), update.mesh), hyperparameters)
        states.append(jax.device_get(state))
        all_sums.append(jax.device_get(metrics.sums))
    return states, all_sums


def named(state: TrainState) -> dict[str, np.ndarray]:
    return flatten_dict(state.params, sep="/")


ACCUMULATED, DEEP = {"batching__accumulation_steps": 2}, {"model__num_layers": 2}
SCANNED = DEEP | {"model__scan_layers": True, "model__rematerialize": "full"}
BY_DEVICES, BY_PARAMETERS = {"devices": 4} | ACCUMULATED, {"devices": 4, "fsdp": 2}


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        ("balance_bias", BY_DEVICES),
        ("capped_heads", SCANNED),
        *(
            pytest.param(case, changed, marks=pytest.mark.slow)
            for case, changed in (
                *(("balance_bias", ACCUMULATED), ("balance_bias", BY_PARAMETERS | DEEP), ("balance_bias", SCANNED)),
                *(("capped_heads", BY_DEVICES), ("capped_heads", BY_PARAMETERS), ("ngpt", BY_PARAMETERS)),
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_an_update_is_the_same_in_micro_batches_on_meshes_and_in_scanned_layers(case, changed):
    depth = DEEP if "model__num_layers" in changed else {}
    (one, one_sums), (other, other_sums) = updated(case, **depth), updated(case, **changed)
    for (path, expected), found in zip(named(one[-1]).items(), named(other[-1]).values(), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5, err_msg=path)
    assert [sums.statistics for sums in one_sums + other_sums] == [{}] * 4, "they are not logged"


def test_a_schedule_is_the_value_of_its_update():
    _, sums = updated("balance_bias", count=4)
    constant = [updated("balance_bias", count=4, z_loss__weight=weight)[1] for weight in (0.0, 1e-2)]
    assert sums[0].extras["z_loss"] == 0.0 and sums[0].loss == constant[0][0].loss
    assert sums[0].nll == constant[1][0].nll, "of the first update, before its gradient"
    shares = (
        np.array([each.extras["z_loss"] for each in sums])[1:] / [each.extras["z_loss"] for each in constant[1]][1:]
    )
    np.testing.assert_allclose(shares, [1 / 3, 2 / 3, 1], rtol=0.2), "of parameters that differ since the first update"


def test_biases_of_experts_follow_their_loads_without_optimizer_and_average():
    states, _ = updated("balance_bias", optimizer__name="adamw")
    biases = [named(state)[BIAS] for state in states]
    assert not biases[0].any() and set(np.abs(np.float32(biases[1] / 0.01)).round(3)) <= {0.0, 1.0} and biases[1].any()
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(states[1].optimizer_state)]
    assert not [path for path in paths if "balance_bias" in path] and [path for path in paths if "experts_wide" in path]


def test_the_loads_become_equal():
    states, _ = updated("balance_bias", count=60, optimizer__learning_rate=1e-6)
    first, last = (np.ptp(load_of_experts(states[count])) for count in (1, 60))
    assert last < 0.5 * first


def load_of_experts(state: TrainState) -> np.ndarray:
    """Return the load of each expert, in tokens of the batch."""
    parts = BALANCED | {"balance_bias": {"rate": 0.0}}
    sizes = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0, "embedding_dropout": 0.0}
    values = {
        "task": "language_model",
        "tokenizer": {"kind": "byte", "vocabulary_size": 64},
        "model": sizes | EXPERTS,
        "parts": parts,
    }
    config = from_dict(values | {"optimizer": {"after_update": "balance_bias"}})
    model = objective_of(config, make_mesh(MeshConfig(data=1), jax.devices()[:1])).model
    apply = jax.jit(partial(model.apply, train=False, mutable=["losses"]))
    _, sown = apply({"params": state.params}, Tokens.from_ids(IDS))
    return np.asarray(sown["losses"]["decoder_layers_0"]["feed_forward"]["expert_load"][0])


def test_all_matrices_of_ngpt_have_unit_vectors_from_the_start_and_the_parameters_train():
    ema = {"optimizer__averaging": "ema"}
    update, states = update_of("ngpt", **ema)[0], updated("ngpt", **ema)[0][::2]
    restored = update.initial_state(0, lambda params: jax.tree.map(lambda leaf: 3 * leaf, params))
    average = states[1]._replace(params=update.evaluation_params(states[1]))
    for state in (*states, restored, average):
        for path, leaf in named(state).items():
            if leaf.ndim > 1 and "changes" not in path:
                axis = 0 if path.rpartition("/")[2] in ("query", "key", "value", "wide_kernel", "gate_kernel") else -1
                np.testing.assert_allclose(np.linalg.norm(leaf, axis=axis), 1.0, rtol=1e-5, err_msg=path)
    before, after = map(named, states)
    assert [path for path in before if np.array_equal(before[path], after[path])] == []


def test_frozen_parameters_keep_their_values():
    frozen = r"self_attention/query$"
    before, after = map(named, updated("capped_heads", count=1, optimizer__freeze=frozen, **DEEP)[0])
    path = "decoder_layers_0/self_attention/query"
    np.testing.assert_array_equal(after[path], before[path])
    assert not np.array_equal(named(updated("capped_heads", **DEEP)[0][1])[path], before[path])


class Halved(AfterUpdate):
    def after_update(self, params, statistics):
        return jax.tree.map(lambda leaf: leaf / 2, params)


def test_a_skipped_update_changes_nothing():
    for factor, expected in ((0.0, 0.5), (math.nan, 1.0)):
        state = plain_update("halved", factor)
        assert set(np.ravel(state.params["embedding"]["table"])) == {expected}


class WrongTree(AfterUpdate):
    def after_update(self, params, statistics):
        return {name: value for name, value in params.items() if name != "embedding"}


def test_wrong_parts_and_missing_statistics_are_errors():
    for name, message in (
        ("wrong_tree", "after_update of wrong_tree returned a tree of other names or shapes"),
        ("balance_bias", "balance_bias got no statistics"),
    ):
        with pytest.raises(ConfigError, match=message):
            plain_update(name)
    for values, message in (
        ({"optimizer": {"after_update": "balance_bias"}}, "balance_bias needs model.feed_forward=mixture_of_experts"),
        (
            {"model": EXPERTS, "parts": {"mixture_of_experts": {"balance_bias": True}}},
            "stays 0 without optimizer.after",
        ),
        ({"model": {"positions": "ngpt"}}, "ngpt is one of five parts of nGPT; set model.normalization=ngpt and"),
        (
            {"optimizer": {"after_update": "capped_heads", "averaging": "schedule_free"}},
            "capped_heads changes parameters that schedule_free computes",
        ),
        (
            {"model": {"kind": "rnn"}, "optimizer": {"after_update": "capped_heads"}},
            "reads activations of Transformers",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            from_dict(values).check_new_run()


def plain_update(name: str, factor: float = 1.0) -> TrainState:
    """The state after an update by a loss that computes no statistics."""
    config, mesh = from_dict({"optimizer": {"after_update": name}}), make_mesh(MeshConfig(data=1), jax.devices()[:1])

    def loss(params: dict, batch: Tokens, key: jax.Array, hyperparameters: object) -> LossSums:
        return LossSums.zero()._replace(loss=factor * jnp.sum(params["embedding"]["table"] ** 2), tokens=jnp.ones(()))

    def init_params(key: jax.Array) -> dict:
        table = {"table": jnp.ones((8, 4))}
        return {"embedding": table, "decoder_layers_0": {"feed_forward": {"balance_bias": jnp.ones(4)}}}

    update = Update(config, loss, init_params, mesh)
    hyperparameters = put_hyperparameters(scheduled_hyperparameters_of(config), mesh)
    return update.jitted(update.initial_state(0), put_rows(Tokens.from_ids(IDS), mesh), hyperparameters)[0]
