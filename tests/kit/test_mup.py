"""muP: its table, and the coordinate check, in which activations do not grow with the width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import MeshConfig, from_dict, hyperparameters_of
from transformer_jax.layers.site import Site
from transformer_jax.registry.plugins import registered
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows
from transformer_jax.training.update import Update

UPDATES, BASE, HEADS, VOCABULARY = 4, 32, 4, 256


def model_of(width, is_mup):
    """A language model of two layers of this width, whose heads grow with it."""
    model = {"d_model": width, "d_ff": 4 * width, "num_heads": HEADS, "num_layers": 2, "tying": "none"}
    model |= {"normalization": "pre", "dropout": 0.0, "embedding_dropout": 0.0}
    optimizer = {"name": "adam", "schedule": "constant", "learning_rate": 0.01, "warmup_updates": 1}
    values = {"model": model, "optimizer": optimizer, "training": {"watch": "activation_norms", "num_updates": UPDATES}}
    if is_mup:
        model |= {"initialization": "mup", "attention": "mup"}
        optimizer["name"] = "mup"
        values["parts"] = {"mup": {"base_width": BASE, "base_key_size": BASE // HEADS}}
    return from_dict({"task": "language_model", "tokenizer": {"kind": "byte"}, **values})


def last_hidden_sizes(width, is_mup):
    """Root mean squares of the last layer's output before each of ``UPDATES`` updates."""
    config, mesh = model_of(width, is_mup), make_mesh(MeshConfig(data=1), jax.devices()[:1])
    objective = objective_of(config, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (8, 16)).astype(np.int32)
    batch, hyperparameters = put_rows(Tokens.from_ids(ids), mesh), put_hyperparameters(hyperparameters_of(config), mesh)
    state, sizes = update.initial_state(0), []
    for _ in range(UPDATES):
        state, metrics = update.jitted(state, batch, hyperparameters)
        total, count = metrics.sums.statistics["activation_norms"]["decoder_layers_1"]
        sizes.append(float(total / count))
    return np.array(sizes)


def test_rates_and_initial_values_follow_the_table():
    config = model_of(64, is_mup=True)
    adam, rates = registered("optimizer")["mup"](config.parts["mup"], hyperparameters_of(config))
    shapes = {"embedding/table": (9, 64), "projection/table": (9, 64), "self_attention/query": (64, 2, 32)}
    shapes |= {"self_attention/output": (2, 32, 64), "feed_forward/wide_kernel": (64, 256), "norm/scale": (64,)}
    shapes |= {"feed_forward/narrow_kernel": (256, 64), "feed_forward/wide_bias": (256,), "positions/table": (5, 64)}
    shapes |= {"positions/biases": (8, 2), "feed_forward/router_kernel": (64, 4), "changes_shaw/relative": (5, 32)}
    shapes |= {"self_attention/output_gate": (64, 2, 32), "self_attention_residual/connection": (64, 6)}
    gradient = {path: jnp.ones(shape) for path, shape in shapes.items()}
    updates = jax.jit(lambda item: rates.update(adam.update(item, adam.init(item))[0], rates.init(item))[0])(gradient)
    actual = {path: float(jnp.ravel(update)[0]) for path, update in updates.items()}
    hidden = ("self_attention/query", "self_attention/output", "feed_forward/wide_kernel", "feed_forward/narrow_kernel")
    hidden += ("self_attention/output_gate", "self_attention_residual/connection")
    expected = dict.fromkeys(shapes, 1.0) | dict.fromkeys(
        (*hidden, "projection/table", "feed_forward/router_kernel"), 0.5
    )
    assert actual == pytest.approx(expected | {"embedding/table": 0.5**0.5}, rel=1e-4)

    rule, site = registered("initialization")["mup"], Site("decoder", "self", 1, True)
    initial = {path: rule(config.parts["mup"], config.model, site, path) for path in shapes}
    changed = {"projection/table": 0.5**0.5, "positions/table": 2**0.5, "positions/biases": 2**0.5}
    # Both are outputs, and relative vectors are as wide as a head, 16 instead of 8.
    outputs = ("feed_forward/router_kernel", "self_attention_residual/connection")
    changed |= {"changes_shaw/relative": 2**0.5} | dict.fromkeys(outputs, 0.5**0.5)
    assert initial == pytest.approx(dict.fromkeys(shapes, 1.0) | changed)


@pytest.mark.slow
def test_activations_grow_with_the_width_only_in_the_standard_parametrization():
    ratios = [last_hidden_sizes(256, is_mup) / last_hidden_sizes(32, is_mup) for is_mup in (False, True)]
    assert ratios[0][-1] > 2
    np.testing.assert_allclose(ratios[1], 1.0, atol=0.15)
