"""Residual streams and states between layers: any execution and depth gives the same model."""

import inspect
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from transformer_jax.config import ConfigError
from transformer_jax.kit.value_residual import ValueResidual
from transformer_jax.layers.modified_attention import SelfAttentionChange
from transformer_jax.layers.residual import PreNormResidual
from transformer_jax.models.inspection import attention_records, recorded
from transformer_jax.registry.plugins import register
from transformer_jax.tasks.task import objective_of
from transformer_jax.tools.conform.model_properties import (
    causal_by_gradient,
    left_padding_changes_nothing,
    packed_equals_apart,
    scan_equals_unrolled,
    step_equals_full_pass,
)
from transformer_jax.tools.conform.trials import ROWS, Trial, sentences, single_mesh, trial_config

DEPTHS = {"translation": {"num_encoder_layers": 3, "num_decoder_layers": 2}, "language_model": {"num_layers": 3}}
LENGTH = 5


def double(scores, at):
    return scores + 1.0


class SharedMemory(SelfAttentionChange):
    """Later layers attend to the keys and values of the layer before, and count their tokens."""

    def memory(self, keys, values, state, token_ids):
        if state is None:
            return keys, values, {"memory": (keys, values), "count": token_ids % 2, "layers": jnp.ones((), jnp.int32)}
        shared, odd = state["memory"], (state["count"] == 1)[:, None, :, None]
        passed = {"memory": shared, "count": state["count"] + token_ids % 2, "layers": state["layers"] + 1}
        return shared[0], jnp.where(odd, 2.0, 1.0) * shared[1] * state["layers"], passed

    def score_mod(self):
        return Partial(double)


class TwoStreams(PreNormResidual):
    """A tree as the stream: the sublayer reads the first and adds to the second, then they swap."""

    def enter(self, x, token_ids):
        return {"read": x, "written": x * (token_ids % 2)[..., None]}

    def leave(self, x):
        return x["read"] + x["written"]

    def before(self, x):
        return self.norm(x["read"])

    def after(self, x, y, *, train):
        return {"read": super().after(x["written"], y, train=train), "written": x["read"]}


@pytest.fixture(scope="module", autouse=True)
def parts(plugins_of_this_file):
    register("attention", "shared_memory")(SharedMemory)
    register("residual", "two_streams")(TwoStreams)


@pytest.fixture(scope="module")
def trial_of():
    trials = {}

    def trial(model, **settings):
        key = model, *settings.items()
        values = {"model": {**DEPTHS[model], **settings}}
        return trials.setdefault(key, Trial(trial_config(model, values, small=True)))

    return trial


BOTH = {"attention": "value_residual,shared_memory", "normalization": "two_streams"}
STREAMS = {"attention": "value_residual", "normalization": "hyper_connections"}
HYBRID = {"attention": "grouped_query,value_residual", "mixers": "attention ssru attention", "positions": "rope"}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("translation", BOTH),
        pytest.param("language_model", HYBRID, marks=pytest.mark.slow),
        pytest.param("language_model", BOTH, marks=pytest.mark.slow),
        pytest.param("translation", STREAMS, marks=pytest.mark.slow),
        pytest.param("language_model", STREAMS, marks=pytest.mark.slow),
    ],
)
def test_streams_and_states_decode_scan_and_pack(trial_of, model, settings):
    trial = trial_of(model, **settings)
    step_equals_full_pass(trial, LENGTH)
    packed_equals_apart(trial, LENGTH)
    causal_by_gradient(trial, LENGTH)
    scan_equals_unrolled(trial, LENGTH)
    if model == "language_model":
        left_padding_changes_nothing(trial, LENGTH)


def test_a_scanned_stack_with_states_has_two_layers_in_its_program(trial_of):
    def products(depth):
        trial = Trial(trial_config("language_model", {"model": {"num_layers": depth, "attention": "value_residual"}}))
        scanned = Trial(replace(trial.config, model=replace(trial.config.model, scan_layers=True)))
        shapes = trial.update.state_shapes.params
        program = jax.jit(scanned.teacher_forced).lower(shapes, sentences(ROWS, LENGTH).batch)
        return program.as_text().count("dot_general")

    one, three, four = (products(depth) for depth in (1, 3, 4))
    assert three == four == 2 * one - 1, "the output layer is there once"


@pytest.mark.parametrize("model", ["language_model", pytest.param("translation", marks=pytest.mark.slow)])
def test_hyper_connections_begin_as_pre_norm(trial_of, model):
    batch = sentences(ROWS, LENGTH).batch
    hyper, pre = trial_of(model, **STREAMS), trial_of(model, **STREAMS | {"normalization": "pre"})
    initial = hyper.initial_state.params
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(initial)}
    shared = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaves[jax.tree_util.keystr(path)], pre.update.state_shapes.params
    )
    actual, expected = jax.jit(hyper.teacher_forced)(initial, batch), jax.jit(pre.teacher_forced)(shared, batch)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    first_reads = [np.argmax(leaf[:, 0]) for path, leaf in leaves.items() if path.endswith("['alpha']")]
    assert sorted(set(first_reads)) == [0, 1, 2, 3]


def test_initial_values_are_the_same_where_layers_are_scanned(trial_of):
    unrolled = trial_of("language_model", **STREAMS)
    scanned = Trial(unrolled.with_model(scan_layers=True).config)
    jax.tree.map(np.testing.assert_array_equal, unrolled.initial_state.params, scanned.initial_state.params)


def test_activations_of_streams_are_hidden_states_and_values_are_those_attended_to(trial_of):
    trial, batch = trial_of("language_model", **STREAMS), sentences(ROWS, LENGTH).batch
    with recorded() as activations:
        trial.model.apply({"params": trial.params}, batch.target, train=False, mutable=["intermediates"])
    shapes = {hidden.shape for hidden, _ in activations.hidden.values()}
    assert shapes == {(ROWS, LENGTH, trial.config.model.d_model)} and len(activations.hidden) == 3
    result = attention_records(trial.model, trial.params, batch.target)["decoder_layers_1/self_attention"].transformed
    params = jax.tree.map(lambda leaf: leaf, trial.params)
    params["decoder_layers_1"]["self_attention"]["changes_value_residual"]["shares"] = jnp.zeros(2)
    zeros = attention_records(trial.model, params, batch.target)["decoder_layers_1/self_attention"].transformed
    assert np.abs(result).max() > 0.1 and np.abs(zeros).max() == 0.0


class NarrowMemory(SelfAttentionChange):
    def memory(self, keys, values, state, token_ids):
        return keys, values[..., :1], None


class OtherTree(TwoStreams):
    def after(self, x, y, *, train):
        return super().after(x, y, train=train) | {"third": y}


class Wide(PreNormResidual):
    def enter(self, x, token_ids):
        return jnp.stack([x, x], axis=2)

    def before(self, x):
        return self.norm(x[:, :, 0])

    def after(self, x, y, *, train):
        return x + y[:, :, None]

    def leave(self, x):
        return x


@pytest.mark.parametrize(
    ("settings", "function", "problem"),
    [
        (
            {"attention": "narrow_memory"},
            NarrowMemory.memory,
            "returned [1, 4, 2, 1], expected [B, G, M, U] = [1, 4, 2, 4]",
        ),
        ({"normalization": "other_tree"}, OtherTree.after, "returned {'read': (1, 2, 16), 'third':"),
        ({"normalization": "wide"}, Wide.leave, "returned [1, 2, 2, 16], expected [B, L, D] = [1, 2, 16]"),
    ],
)
def test_a_wrong_shape_is_named_with_its_line(settings, function, problem):
    register("attention", "narrow_memory")(NarrowMemory)
    register("residual", "other_tree")(OtherTree)
    register("residual", "wide")(Wide)
    line = inspect.unwrap(function).__code__.co_firstlineno
    expected = rf"test_streams\.py, line {line}: {function.__qualname__} {re.escape(problem)}"
    with pytest.raises(ConfigError, match=expected):
        build(settings)


def test_a_part_whose_state_cannot_be_passed_is_refused():
    register("positions", "by_function")(
        lambda settings, config, site: ValueResidual.of(settings, config, site) if site.kind == "self" else None
    )
    with pytest.raises(ConfigError, match="by_function has a state between layers; register its class"):
        build({"positions": "by_function"})
    with pytest.raises(ConfigError, match="LatentAttention has its own keys and values"):
        build({"attention": "latent,value_residual"})


def build(settings):
    config = trial_config("language_model", {"model": {"num_layers": 1, **settings}}, small=True)
    jax.eval_shape(objective_of(config, single_mesh()).init_params, jax.random.key(0))
