"""Word vectors as a task: what an update does on whatever devices, what a run resumes from, which
words become neighbors."""

import jax
import numpy as np
import pytest
from tools.word_vectors.word_vectors_settings import word_vectors_config

from transformer_jax.config import ConfigError, MeshConfig, hyperparameters_of
from transformer_jax.config.run_settings import resolve
from transformer_jax.tools.preflight.collectives import collectives_of
from transformer_jax.tools.word_vectors.task.word_vector_objective import WordVectorObjective
from transformer_jax.tools.word_vectors.task.word_vector_task import WordVectorTask
from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
from transformer_jax.training.update import Update

SKIP_GRAM = {"kind": "skip_gram", "d_model": 8, "window": 2}
GLOVE = {"kind": "glove", "d_model": 8, "window": 4}
BLOCKS = {
    "skip_gram": {"model": SKIP_GRAM},
    "cbow": {"model": SKIP_GRAM | {"kind": "cbow"}},
    "glove": {"data": {"subsample": 0.0}, "model": GLOVE | {"x_max": 10.0}}
    | {"optimizer": {"name": "adagrad", "schedule": "constant", "learning_rate": 0.5}},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def task_of(config):
    devices = 1 if config.mesh.data * config.mesh.fsdp * config.mesh.tensor == 1 else 8
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    return WordVectorTask(config, WordVectorTask.new_tokenizers(config), mesh)


def trained(task, updates):
    objective = task.objective
    update = Update(task.config, objective.loss, objective.init_params, task.mesh, objective.update_rule)
    state = update.initial_state(task.config.seed)
    hyperparameters = put_hyperparameters(hyperparameters_of(task.config), update.mesh)
    for batch, _ in zip(task.training_data().batches(0), range(updates), strict=False):
        state, metrics = update.jitted(state, put_batch(batch, update.mesh), hyperparameters)
        assert metrics.finite
    return state


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("skip_gram", {"data": 1, "tensor": 8}),
        pytest.param("cbow", {"data": 2, "fsdp": 2, "tensor": 2}, marks=pytest.mark.slow),
        pytest.param("glove", {"data": 8}, marks=pytest.mark.slow),
    ],
)
def test_tables_shared_by_devices_become_those_of_one(cache, name, axes):
    alone, shared = (
        trained(task_of(word_vectors_config(cache, **BLOCKS[name], **mesh)), 2).params for mesh in ({}, {"mesh": axes})
    )
    for left, right in zip(jax.tree.leaves(alone), jax.tree.leaves(shared), strict=True):
        np.testing.assert_allclose(jax.device_get(left), jax.device_get(right), atol=2e-6)
        assert np.abs(jax.device_get(left)).max() > 1e-3
    if axes.get("tensor") == 8:
        table = shared["embedding"]["table"]
        assert {shard.data.shape[0] for shard in table.addressable_shards} == {table.shape[0] // 8}


def test_devices_exchange_the_rows_that_a_block_reads_and_no_table(cache):
    config = word_vectors_config(cache, model=SKIP_GRAM, mesh={"data": 8})
    mesh, batching = make_mesh(config.mesh), config.batching
    objective = WordVectorObjective(config, 50_000, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh, objective.update_rule)
    batch = WordVectorTask.batch_shape(config, batching.rows * batching.blocks_per_update, batching.row_length)
    table = update.state_shapes.params["embedding"]["table"]
    collectives = collectives_of(update.lower(batch).compile().as_text(), mesh.size)
    assert sum(collective.bytes * collective.times for collective in collectives) < table.size * table.dtype.itemsize


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            {"batching": {"blocks_per_update": 1, "rows": 1}},
            "batching: an update has 8 words and needs 48 with window=2",
        ),
        ({"data": {"subsample": 0.001}, "model": GLOVE}, "data.subsample: 0.001: GloVe counts all words"),
        ({"optimizer": {"name": "adam"}}, "optimizer.name: 'adam' cannot update single rows"),
        ({"optimizer": {"clip_norm": 1.0}}, "optimizer.clip_norm: 1.0 is not supported for word vectors"),
    ],
)
def test_settings_that_would_do_harm_or_nothing_are_refused(cache, blocks, message):
    with pytest.raises(ConfigError, match=message):
        WordVectorObjective(word_vectors_config(cache, **blocks), 50, make_mesh(MeshConfig(), jax.devices()[:1]))


def test_batches_are_a_function_of_the_update(cache):
    data = task_of(word_vectors_config(cache)).training_data()
    per_epoch = data.blocks.updates_per_epoch
    first = [batch for batch, _ in zip(data.batches(0), range(per_epoch + 2), strict=False)]
    (shape,) = data.batch_shapes(0)
    assert all(leaf.shape == like.shape for leaf, like in zip(first[0], shape, strict=True))
    assert 0 < data.blocks.report()[0]["kept_share"] < 1
    whole = task_of(word_vectors_config(cache, data={"subsample": 0.0})).training_data()
    assert whole.blocks.report()[1].endswith("100.0% of the words that have vectors stay after subsampling")
    again = task_of(word_vectors_config(cache)).training_data()
    for start in (1, per_epoch + 1):
        jax.tree.map(np.testing.assert_array_equal, next(again.batches(start)), first[start])
    assert not np.array_equal(first[0].words, first[per_epoch].words)


def test_without_subsampling_an_epoch_has_every_word_once_as_a_center(cache):
    task = task_of(word_vectors_config(cache, data={"subsample": 0.0}))
    data = task.training_data()
    batches = [batch for batch, _ in zip(data.batches(0), range(data.blocks.updates_per_epoch), strict=False)]
    centers = np.concatenate([batch.words[:, 2:-2].ravel() for batch in batches])
    counts = [np.bincount(ids, minlength=task.tokenizer.vocabulary_size)[4:] for ids in (centers, data.store.ids)]
    np.testing.assert_array_equal(*counts)


def test_the_recipe_reads_text_if_text_is_named():
    assert resolve("word_vectors", [("data.directory", "texts")]).data.source == "text"
