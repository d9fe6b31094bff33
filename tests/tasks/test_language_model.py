"""The language model as a task: updates, resumption, and the meaning of bits per byte."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks.language_model_settings import language_model_config

from transformer_jax.config import ConfigError, hyperparameters_of
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.language_model.language_model_task import LanguageModelTask
from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
from transformer_jax.training.update import Update

UPDATES = 12


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def task_of(config, devices=1):
    tokenizers = LanguageModelTask.new_tokenizers(config)
    return LanguageModelTask(config, tokenizers, make_mesh(config.mesh, jax.devices()[:devices]))


@pytest.fixture(scope="module", params=["split", "packed"])
def task(request, cache):
    return task_of(language_model_config(cache, batching={"kind": request.param}))


@pytest.fixture(scope="module")
def params(task):
    return jax.device_get(jax.jit(task.objective.init_params)(jax.random.key(0)))


def trained(task, updates):
    config = task.config
    update = Update(config, task.objective.loss, task.objective.init_params, task.mesh)
    hyperparameters = put_hyperparameters(hyperparameters_of(config), update.mesh)
    state = update.initial_state(config.seed)
    losses = []
    for batch, _ in zip(task.training_data().batches(0), range(updates), strict=False):
        state, metrics = update.jitted(state, put_batch(batch, update.mesh), hyperparameters)
        assert metrics.finite
        losses.append(float(metrics.sums.nll / metrics.sums.tokens))
    return state, losses


@pytest.fixture(scope="module")
def before(task, params):
    """Here the text is generated, which takes seconds where types are checked."""
    return task.evaluate(params, "validation")


@pytest.mark.slow
@pytest.mark.checked
def test_the_loss_falls_and_the_evaluation_sees_it(task, before):
    state, losses = trained(task, UPDATES)
    after = task.evaluate(state.params, "validation")
    assert losses[-1] < losses[0] - 1
    assert after.bits_per_byte < before.bits_per_byte - 1
    assert abs(losses[0] - math.log(260)) < 1


def test_signs_of_files_from_windows_are_told(cache, tmp_path):
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbfone two\r\n" * 40)
    task = task_of(language_model_config(cache, data={"source": "text", "train": f"{tmp_path}/t.txt", "held_out": 0.5}))
    report = task.training_data().report
    (warning,) = report.content["warnings"]
    assert warning in report.text
    assert "has carriage returns at ends of lines and a byte order mark, which the model learns" in warning


def test_bits_per_byte_are_those_of_every_token_over_every_byte(task, params):
    """Against one document at a time; on packed rows only earlier tokens of it count."""
    store, result = task._store("validation"), task.evaluate(params, "validation", limit=5)
    texts = [document.text for document, _ in zip(task.source.documents("validation"), range(5), strict=False)]
    assert result.num_bytes == sum(len(text.encode()) + 1 for text in texts)
    assert result.tokens == store.offsets[5] == result.num_bytes
    if task.config.batching.kind == "packed":
        pieces = [store.ids[start:end] for start, end in zip(store.offsets[:5], store.offsets[1:6], strict=True)]
    else:
        pieces = [store.ids[: store.offsets[5]]]
    nll = 0.0
    for piece in pieces:
        for start in range(0, len(piece), 32):
            ids = jnp.asarray(np.asarray(piece[start : start + 32], np.int32))[None]
            padded = jnp.pad(ids, ((0, 0), (0, 32 - ids.shape[1])))
            nll += log_likelihood(task, params, padded, ids.shape[1])
    assert result.bits_per_byte == pytest.approx(nll / math.log(2) / result.num_bytes, rel=1e-5)
    assert result.metrics["perplexity"] == pytest.approx(math.exp(nll / result.tokens), rel=1e-4)
    assert result.metrics["accuracy"] == result.correct / result.tokens


def log_likelihood(task, params, ids, length):
    tokens = Tokens(ids, (jnp.arange(32)[None] < length).astype(jnp.int32), jnp.arange(32)[None])
    log_probs = jax.nn.log_softmax(logits_of(task.objective.model, params, tokens))
    return -float(jnp.take_along_axis(log_probs, ids[..., None], axis=-1)[0, :length].sum())


@partial(jax.jit, static_argnums=0)
def logits_of(model, params, tokens):
    return model.apply({"params": params}, tokens, train=False)


def test_a_model_that_knows_nothing_has_log2_of_the_vocabulary_bits(task, params):
    nothing = jax.tree.map(jnp.zeros_like, params)
    assert task.evaluate(nothing, "test").bits_per_byte == pytest.approx(math.log2(260), rel=1e-5)


def test_with_a_stride_the_same_tokens_have_another_context(cache, task, params):
    kind = {"kind": task.config.batching.kind}
    if kind["kind"] == "packed":
        with pytest.raises(ConfigError, match="data.evaluation_stride: rows overlap only with batching.kind=split"):
            language_model_config(cache, data={"evaluation_stride": 8}, batching=kind)
        return
    strided = task_of(language_model_config(cache, data={"evaluation_stride": 8}))
    one, two = (item.evaluate(params, "validation", limit=20) for item in (task, strided))
    assert (one.tokens, one.num_bytes) == (two.tokens, two.num_bytes)
    assert two.bits_per_byte != one.bits_per_byte
    assert two.stride == 8


@pytest.mark.slow
def test_devices_change_nothing(cache):
    model, mesh = {"num_heads": 4}, {"data": 1, "fsdp": 2, "context": 2, "tensor": 2}
    config = language_model_config(cache, model=model, mesh=mesh)
    one = task_of(language_model_config(cache, model=model))
    several = task_of(config, 8)
    states = [jax.device_get(trained(task, 3)[0].params) for task in (one, several)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-3), *states)
    result = [task.evaluate(states[0], "validation", limit=9).nll for task in (one, several)]
    assert result[0] == pytest.approx(result[1], rel=1e-5)
