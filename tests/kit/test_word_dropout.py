"""Word dropout: the model reads UNK for some tokens, and predicts the tokens themselves."""

from functools import partial

import jax
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.array_types import EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import MeshConfig, from_dict, hyperparameters_of
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.kit.word_dropout import WordDropoutSettings, word_dropout
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.language_model.language_model_task import LanguageModelTask
from transformer_jax.training.sharding import make_mesh

IDS = np.random.default_rng(0).integers(4, 60, (40, 30)).astype(np.int32)
IDS[:, 28], IDS[:, 29] = EOS_ID, PAD_ID


def test_tokens_become_unknown_at_the_rate_and_ends_stay():
    batch = Batch(Tokens.from_ids(IDS), Tokens.from_ids(IDS))
    result = jax.jit(partial(word_dropout, WordDropoutSettings(0.3)))(batch, jax.random.key(0))
    dropped = [np.asarray(side.ids) == UNK_ID for side in result]
    assert all(abs(side[:, :28].mean() - 0.3) < 0.05 for side in dropped) and (dropped[0] != dropped[1]).any()
    for side, was_dropped in zip(result, dropped, strict=True):
        np.testing.assert_array_equal(side.ids[~was_dropped], IDS[~was_dropped])
        assert not was_dropped[:, 28:].any()
        np.testing.assert_array_equal(side.segments, batch.source.segments)


@pytest.mark.slow
def test_the_labels_stay_and_inspection_reads_the_same_tokens():
    model = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0, "embedding_dropout": 0.0}
    values = {"task": "language_model", "tokenizer": {"kind": "byte"}, "model": model}
    config = from_dict(values | {"training": {"corruptions": "word_dropout"}, "parts": {"word_dropout": {"rate": 0.5}}})
    mesh = make_mesh(MeshConfig(data=1), jax.devices()[:1])
    task = LanguageModelTask(config, TokenizerPair(*2 * [ByteTokenizer()]), mesh)
    objective = task.objective
    params = random_params(objective.init_params, jax.random.key(0))
    batch, key = Tokens.from_ids(IDS[:2, :8]), jax.random.key(1)
    sums = jax.jit(objective.loss)(params, batch, key, hyperparameters_of(config))
    read = word_dropout(WordDropoutSettings(0.5), batch, jax.random.fold_in(key, 0xC0))
    inspected = jax.jit(objective.activations)(params, batch, key, hyperparameters_of(config))
    (hidden,) = inspected["decoder_norm"]["__call__"]
    factors = jax.jit(partial(objective.model.apply, method="factors", train=False))({"params": params}, read)
    np.testing.assert_allclose(hidden, factors.hidden, atol=1e-5)
    logits = np.asarray(factors.hidden, np.float64) @ np.asarray(factors.matrix).T
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_probs, batch.ids[..., None], -1).sum()
    np.testing.assert_allclose(sums.nll, expected, rtol=1e-5)
