"""The explorer reads small models: their search, averages and error rates of heads."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from tools.explorer.small_runs import language_model_run, translation_run

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import ConfigError, DataError
from transformer_jax.models.inspection import ATTENTION_KINDS, head_counts, without_head
from transformer_jax.tasks.language_model.generator import Generator
from transformer_jax.tools.explorer.readers import LanguageModelReader, TranslationReader
from transformer_jax.tools.explorer.word_alignment import read_gold


@pytest.fixture(scope="module")
def translation(tmp_path_factory):
    return TranslationReader(translation_run(tmp_path_factory.mktemp("cache"), noise=0.0))


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    return LanguageModelReader(language_model_run(tmp_path_factory.mktemp("cache")))


@pytest.mark.slow
def test_averages_and_error_rates_are_of_every_head(translation):
    kinds = {table.kind: table.values for table in translation.statistics("validation", 4)}
    assert kinds.keys() == ATTENTION_KINDS.keys()
    assert all(np.isfinite(values).all() for statistics in kinds.values() for values in statistics.values())
    rates = translation.error_rates([("a b", "b a")], read_gold(["0-1 1-0"], "gold"), "gold")
    assert rates.shape == (1, 2) and set(rates.ravel()) <= {0.0, 0.5, 1.0}


def test_statistics_of_documents_say_where_they_are_cut(language_model):
    (table,) = language_model.statistics("validation", 4)
    assert table.source == "averages over the first 4 documents (at most 32 tokens of each)"


def test_a_text_is_read_causally(language_model):
    reading = language_model.read("a dog", with_gradients=False)
    assert reading.translation is None and reading.importance == {}
    assert reading.tokens["input"] == ["<s>", *reading.tokens["target"][:-1]]
    (attention,) = reading.attentions
    weights = attention.weights[0]
    assert np.triu(weights, 1).max() == 0
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(attention.rollout[0], (weights.mean(axis=0) + np.eye(6)) / 2, rtol=1e-5)
    with pytest.raises(DataError, match="exceed the context of 32 tokens"):
        language_model.read("x" * 40)
    with pytest.raises(ConfigError, match="no source to align"):
        language_model.error_rates([], [], "gold")


def test_the_importance_of_a_head_is_the_rise_of_the_loss_without_it(translation, language_model):
    for reader in (translation, language_model):
        params, masked = reader.trained.params, copy(reader)
        options = {"with_gradients": False, "with_importance": True}
        reading = reader.read("a b c", "c b a", **options)
        for path, count in head_counts(params).items():
            (kind,) = (name for name, axes in ATTENTION_KINDS.items() if axes.matches(path))
            masked.trained = replace(reader.trained, params=without_head(params, path, 1))
            without = masked.read("a b c", "c b a", **options)
            rise = sum(reading.log_probs) - sum(without.log_probs)
            assert reading.importance[kind].shape == (1, count)
            assert reading.importance[kind][0, 1] == pytest.approx(rise, abs=1e-5)
            assert without.importance[kind][0, 1] == 0, "its output is zero"


@pytest.mark.slow
def test_recurrent_layers_have_no_attention_no_importance_and_prevent_rollout(tmp_path):
    trained = translation_run(tmp_path, num_decoder_layers=2, mixers="gated_linear_attention attention")
    reader = TranslationReader(trained, "run")
    reading = reader.read("a b c", "c b a", with_gradients=False, with_importance=True)
    assert [attention.kind for attention in reading.attentions] == [*ATTENTION_KINDS]
    assert [attention.rollout for attention in reading.attentions] == [None] * 3
    assert reading.importance["decoder"].shape == (1, 2)
    assert reader.name.layers["decoder"] == [2]


@pytest.mark.slow
def test_its_search_is_that_of_the_generator(language_model):
    trained, tree = language_model.trained, language_model.search("a d", 2)
    # The explorer puts a text directly after BOS, as the generator of packed documents does.
    config = replace(trained.config, batching=replace(trained.config.batching, kind="packed"))
    generator = Generator(trained.model, trained.task.tokenizer, config, trained.mesh)
    (expected,) = generator.continuations(trained.params, ["a d"])
    best = tree.hypotheses()[0]
    assert [node.token for node in tree.path(best)] == expected.token_ids
    assert tree.nodes[best].log_prob == pytest.approx(expected.log_prob, abs=1e-4)
    # A prefix as long as the continuation may be leaves no room for its end.
    with_room = [prefix for prefix in tree.alternatives(8) if len(prefix) < 6 or prefix[-1] == EOS_ID]
    forced = language_model.search("a d", 8).forced
    assert [result.prefix for result in forced] == with_room and with_room
    result = language_model.forced("a d", with_room[0])
    assert (result.text, result.log_prob) == (forced[0].text, pytest.approx(forced[0].log_prob, abs=1e-4))
