"""Updates of rows, by hand: a row that occurs twice, several lookups of one table, a loss that is
not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tools.word_vectors.word_vectors_settings import word_vectors_config

from transformer_jax.config import MeshConfig, hyperparameters_of
from transformer_jax.tools.word_vectors.task.row_updates import Lookup, row_update_rule
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.state import TrainState

TABLE = ("embedding", "table")
RATE = 0.5


def rule_of(name, blocks=1):
    """The loss is that of rows times numbers, so that gradients are those numbers."""
    config = word_vectors_config(
        "unused",
        batching={"rows": 1, "row_length": 200, "blocks_per_update": blocks},
        model={"kind": "skip_gram", "d_model": 1, "shared_negatives": 100},
        optimizer={"name": name, "schedule": "constant", "learning_rate": RATE},
    )

    def lookups(block):
        return {"first": Lookup(TABLE, block["ids"]), "second": Lookup(TABLE, block["ids"][:, :1])}

    def loss(rows, block):
        total = jnp.sum(rows["first"][..., 0] * block["factors"]) + jnp.sum(rows["second"]) * 2.0
        return LossSums(total, total, jnp.zeros(()), jnp.ones(()))

    return config, row_update_rule(config, lookups, loss, make_mesh(MeshConfig(), jax.devices()[:1]))


def updated(name, ids, factors, blocks=1):
    config, rule = rule_of(name, blocks)
    params = {"embedding": {"table": jnp.zeros((4, 1))}}
    state = TrainState(jnp.zeros((), jnp.int32), params, rule.init(params), jnp.zeros((2,), jnp.uint32))
    batch = {"ids": jnp.array(ids), "factors": jnp.array(factors)}
    state, metrics = rule.step(state, batch, hyperparameters_of(config))
    return np.asarray(state.params["embedding"]["table"])[:, 0], metrics


def test_steps_of_a_row_that_occurs_several_times_add_up():
    """Row 1 occurs twice in one lookup and once in another, whose gradient is 2."""
    table, metrics = updated("sgd", [[1, 1, 3]], [[1.0, 2.0, 3.0]])
    assert table.tolist() == [0, -RATE * (1 + 2 + 2), 0, -RATE * 3]
    assert metrics.finite


def test_adagrad_divides_by_the_squares_of_all_occurrences():
    table, _ = updated("adagrad", [[1, 1, 3]], [[1.0, 2.0, 3.0]])
    steps = RATE * np.array([1.0, 2.0, 2.0])
    assert table[1] == pytest.approx(-sum(steps) / (1 + sum(steps**2)) ** 0.5)
    assert table[3] == pytest.approx(-RATE * 3 / (1 + (RATE * 3) ** 2) ** 0.5)


def test_from_the_first_block_that_is_not_finite_on_the_parameters_stay():
    ids, factors = [[1], [2], [3]], [[1.0], [np.nan], [1.0]]
    table, metrics = updated("sgd", ids, factors, blocks=3)
    assert table.tolist() == [0, -RATE * (1 + 2), 0, 0]
    assert not metrics.finite
