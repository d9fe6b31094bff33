"""Parameters by their paths: frozen (the same bits, no optimizer state, no part in the norm), or
taken from a checkpoint."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    InitConfig,
    MeshConfig,
    OptimizerConfig,
    hyperparameters_of,
)
from transformer_jax.registry.index import own_parts
from transformer_jax.training.losses import LossSums
from transformer_jax.training.parameters import Match, frozen_mask, match_parameters, trained_share
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.update import Update

MESH = make_mesh(MeshConfig(data=1), jax.devices()[:1])

NAMES = [name for (kind, name), part in own_parts().items() if kind == "optimizer" and part.owner.is_core]


def init(key: jax.Array) -> dict:
    return {"source_embedding": {"table": jnp.full((3, 2), 2.0)}, "projection": {"table": jnp.full((3, 2), 3.0)}}


def loss(params: dict, batch: jax.Array, key: jax.Array, hyperparameters: object) -> LossSums:
    zero = jnp.zeros(())
    total = sum(jnp.sum(batch * leaf**2) for leaf in jax.tree.leaves(params))
    return LossSums(total, zero, zero, zero + 1)


def updated(freeze: str, name: str = "adam"):
    decay = 0.1 if name in ("adamw", "adafactor") else 0.0
    optimizer = OptimizerConfig(name=name, weight_decay=decay, clip_norm=1.0, freeze=freeze, schedule="constant")
    config = ExperimentConfig(optimizer=optimizer)
    update = Update(config, loss, init, MESH)
    return jax.jit(update.step)(update.initial_state(0), jnp.ones((3, 2)), hyperparameters_of(config))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_frozen_stays_and_has_no_state(name):
    state, metrics = updated("^source_", name)
    before = init(jax.random.key(0))
    np.testing.assert_array_equal(state.params["source_embedding"]["table"], before["source_embedding"]["table"])
    assert np.all(np.asarray(state.params["projection"]["table"]) != before["projection"]["table"])
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state.optimizer_state)]
    assert name == "sgd" or any("projection" in path for path in paths)
    assert not any("source_embedding" in path for path in paths)
    # 6 numbers of gradient 2 * 3.
    assert float(metrics.gradient_norm) == pytest.approx(6 * 6**0.5)


def test_the_others_are_updated_as_if_there_was_nothing_else():
    """Clipping too takes no notice of what is frozen."""
    alone, _ = updated("^source_")
    both, _ = updated("")
    assert not np.array_equal(both.params["source_embedding"]["table"], alone.params["source_embedding"]["table"])
    # Adam's first step has the size of the rate whatever the gradient is.
    np.testing.assert_allclose(both.params["projection"]["table"], alone.params["projection"]["table"], rtol=1e-5)


@pytest.mark.parametrize(("pattern", "which"), [("decoder", "of no parameter"), ("table", "of every parameter")])
def test_nothing_and_everything_are_refused_with_names(pattern, which):
    with pytest.raises(
        ConfigError, match=f"'{pattern}' is found in the path {which}; paths are projection/table, source_"
    ):
        frozen_mask(init(jax.random.key(0)), pattern)
    share = trained_share({"a": jnp.ones((2, 3)), "b": jnp.ones(4), "c": jnp.ones(5)}, "^[ab]")
    assert share.startswith("5 of 15 parameters train; optimizer.freeze='^[ab]' holds 2 of 3")


SAVED = {
    "source_embedding/table": (9, 4),
    "encoder_layers_0/wide_kernel": (4, 8),
    "encoder_layers_1/wide_kernel": (4, 8),
}


def settings_of(**settings: str) -> InitConfig:
    return InitConfig(run="runs/a", **settings)


def test_rules_follow_each_other():
    settings = settings_of(rename=r"^encoder_layers_(\d)=>stack/\1;stack/0 => stack/first")
    wanted = {"stack/1/wide_kernel": (4, 8), "stack/first/wide_kernel": (4, 8), "projection/table": (9, 4)}
    assert match_parameters(SAVED, wanted, settings) == Match(
        {
            "stack/1/wide_kernel": "encoder_layers_1/wide_kernel",
            "stack/first/wide_kernel": "encoder_layers_0/wide_kernel",
        },
        ["projection/table"],
        [],
        ["source_embedding/table"],
    )


def test_what_is_left_out_may_have_another_shape():
    wanted = {**SAVED, "source_embedding/table": (5, 4)}
    match = match_parameters(SAVED, wanted, settings_of(leave_out="embedding"))
    assert match == Match(
        {name: name for name in SAVED if name.startswith("encoder")}, [], ["source_embedding/table"], []
    )
    assert str(match) == "2 arrays taken; 1 left out, randomly initialized: source_embedding/table"


@pytest.mark.parametrize(
    ("wanted", "settings", "message"),
    [
        (
            {**SAVED, "source_embedding/table": (5, 4)},
            {},
            r"1 of 3 parameters .* another shape; .*--config.init.leave_out='\^source_embedding/table\$':\n"
            r"  source_embedding/table: \(9, 4\) in the checkpoint, \(5, 4\) here",
        ),
        (
            SAVED,
            {"leave_out": "decoder"},
            "init.leave_out: 'decoder' is found in no path of this model; paths are source_",
        ),
        (
            SAVED,
            {"rename": r"layers_\d=>layers"},
            "encoder_layers_0/wide_kernel and encoder_layers_1/wide_kernel of the checkpoint would both be encoder_layers/",
        ),
        (SAVED, {"leave_out": "."}, "has no parameter of this model"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_names(wanted, settings, message):
    with pytest.raises(ConfigError, match=message):
        match_parameters(SAVED, wanted, settings_of(**settings))


@pytest.mark.parametrize(("saved", "wanted"), [("table", "embedding/table"), ("embedding/embedding/table", "table")])
def test_another_output_layer_takes_the_output_matrix(saved, wanted):
    saved, wanted = f"projection/{saved}", f"projection/{wanted}"
    shapes = {saved: (3, 2), "embedding/table": (3, 2)}
    match = match_parameters(shapes, {wanted: (3, 2), "embedding/table": (3, 2)}, InitConfig(run="runs/plain"))
    assert match == Match({wanted: saved, "embedding/table": "embedding/table"}, [], [], [])
