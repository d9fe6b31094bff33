"""Compiled operations equal the same ones one by one: loss, gradients, a decoding step."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from transformer_jax.config import ExperimentConfig, MeshConfig, from_dict
from transformer_jax.config.run_settings import resolve
from transformer_jax.tasks.task import objective_of, task_class
from transformer_jax.tools.preflight.health import after_one_update, random_batch, require_equal
from transformer_jax.tools.word_vectors.task.word2vec import TextBlock
from transformer_jax.training.sharding import make_mesh

EXACT = {"dropout": 0.0, "embedding_dropout": 0.0, "compute_dtype": "float32_exact"}
RNN = {"kind": "rnn", "d_embedding": 8, "d_hidden": 8, "d_attention": 8, **EXACT, "dropout": 0.2}
TRANSFORMER = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "d_ff": 16, "num_heads": 2}
OPTIMIZER = {"schedule": "constant", "learning_rate": 0.1, "warmup_updates": 1, "b1": 0.0, "epsilon": 0.01}
VOCABULARY = 2**15 + 16
"""Above 2^15, where a compiler was wrong; so are the positions of ``many_rows``."""


def config_of(model: dict, vocabulary: int = VOCABULARY, **blocks: Any) -> ExperimentConfig:
    tokenizer = {"vocabulary_size": vocabulary}
    return from_dict({"tokenizer": tokenizer, "model": model, "optimizer": OPTIMIZER, **blocks})


CASES: dict[str, tuple[ExperimentConfig, int]] = {
    "transformer": (config_of(TRANSFORMER), 4),
    "many_rows": (config_of(TRANSFORMER, 64), 2**12 + 16),
    "bahdanau": (config_of(RNN | {"attention": "additive", "wiring": "bahdanau", "cell": "gru"}), 4),
    "luong_general": (config_of(RNN | {"attention": "general"}), 4),
}


@pytest.fixture
def as_for_users():
    """Tests run without most optimizations, which is what could be wrong here."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


def on_one_device():
    return make_mesh(MeshConfig(data=1), jax.devices()[:1])


def assert_compiled_equals_eager(config: ExperimentConfig, batch: Any) -> None:
    actual, expected = (after_one_update(config, on_one_device(), batch, is_compiled=item) for item in (True, False))
    require_equal(actual, expected)


# One by one the operations take 15 to 30 CPU seconds.
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_update_is_what_its_operations_one_by_one_are(case, as_for_users):
    config, rows = CASES[case]
    assert_compiled_equals_eager(config, random_batch(config, rows, 8))


@pytest.mark.slow
def test_so_is_one_of_a_language_model(as_for_users):
    sizes = {"num_layers": "1", "d_model": "8", "d_ff": "16", "num_heads": "2", "compute_dtype": "float32_exact"}
    overrides = {f"model.{name}": value for name, value in sizes.items()} | {
        "tokenizer.vocabulary_size": str(VOCABULARY)
    }
    config = resolve("language_model:quick", [*overrides.items(), ("optimizer.epsilon", "0.01")])
    assert_compiled_equals_eager(config, random_batch(config, 4, 8).target)


@pytest.mark.slow
def test_so_is_one_of_skip_gram(as_for_users):
    config = resolve("word_vectors:quick", [("tokenizer.vocabulary_size", str(VOCABULARY))])
    shape = task_class(config.task).batch_shape(config, config.batching.rows, 16)
    random = np.random.default_rng(0)
    words, negatives = (random.integers(4, VOCABULARY, item.shape, np.int32) for item in (shape.words, shape.negatives))
    reach = random.integers(1, config.model.window + 1, shape.reach.shape, np.int32)
    assert_compiled_equals_eager(config, TextBlock(words, reach, negatives))


@pytest.mark.slow
def test_so_is_a_step_of_decoding(as_for_users):
    config = config_of(TRANSFORMER, decoding={"beam_width": 2, "batch_tokens": 32})
    objective = objective_of(config, on_one_device())
    decoding = task_class(config.task).decoding(config, objective, 8, on_one_device())
    params = jax.jit(objective.init_params)(jax.random.key(0))
    inputs = np.random.default_rng(0).integers(4, VOCABULARY, (decoding.rows, 8)).astype(np.int32)
    state = jax.jit(decoding.start, static_argnums=2)(params, inputs, 8)
    compiled = jax.device_get(jax.jit(decoding.step)(params, state))
    with jax.disable_jit():
        expected = jax.device_get(decoding.step(params, state))
    # Scores of beams that are not there are infinite.
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), compiled, expected)
