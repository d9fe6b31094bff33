"""The explorer reads small models: their search, averages and error rates of heads."""

import jax
import numpy as np
import pytest
from run_settings import tiny_settings
from tasks.language_model_settings import language_model_config

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.tokenizers import train_tokenizers
from transformer_jax.evaluation.word_alignment import read_gold
from transformer_jax.tasks.language_model.task import LanguageModelTask
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tools.explorer.readers import LanguageModelReader, TranslationReader
from transformer_jax.training.sharding import make_mesh

PAIRS = [("a b", "b a"), ("a", "a b c")]


@pytest.fixture(scope="module")
def translation(tmp_path_factory):
    config = from_dict(tiny_settings(tmp_path_factory.mktemp("cache")))
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    tokenizers = train_tokenizers(config.tokenizer, open_corpus(config.data, 0), config.data.train_split, 0)
    task = TranslationTask(config, tokenizers, mesh)
    return TranslationReader(TrainedRun(task, jax.jit(task.objective.init_params)(jax.random.key(0)), (1,)))


def test_error_rates_are_those_of_what_is_read(translation):
    gold = read_gold(["0-1 1-0", "0-0 0p1"], "gold")
    rates = translation.error_rates(PAIRS, gold, "gold")
    assert rates.shape == (1, 2)
    by_hand = []
    for source, target in PAIRS:
        (cross,) = (
            each for each in translation.read(source, target, with_gradients=False).attentions if each.kind == "cross"
        )
        # Words are single tokens here; the last of each side is the end.
        by_hand.append(cross.weights[0, :, :-1, :-1].argmax(axis=-1))
    for head in range(2):
        links = [{(int(source), target) for target, source in enumerate(pair[head])} for pair in by_hand]
        sure = sum(len(found & each.sure) for found, each in zip(links, gold, strict=True))
        possible = sum(len(found & each.possible) for found, each in zip(links, gold, strict=True))
        assert rates[0, head] == pytest.approx(1 - (sure + possible) / (5 + 3))


def test_averages_are_of_the_split(translation):
    kinds = {each.kind: each.values for each in translation.statistics("validation", 4)}
    assert set(kinds) == {"encoder", "decoder", "cross"}
    assert all(np.isfinite(values).all() for statistics in kinds.values() for values in statistics.values())


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    decoding = {"max_new_tokens": 4, "beam_width": 3}
    config = language_model_config(tmp_path_factory.mktemp("cache"), decoding=decoding)
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    task = LanguageModelTask(config, LanguageModelTask.new_tokenizers(config), mesh)
    return TrainedRun(task, jax.jit(task.objective.init_params)(jax.random.key(3)), (1,))


def test_a_text_is_read_causally(language_model):
    reading = LanguageModelReader(language_model).read("a dog", with_gradients=False)
    assert reading.translation is None
    assert reading.tokens["input"] == ["<s>", *reading.tokens["target"][:-1]]
    (attention,) = reading.attentions
    weights = attention.weights[0]
    assert np.triu(weights, 1).max() == 0
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(attention.rollout[0], (weights.mean(axis=0) + np.eye(6)) / 2, rtol=1e-5)
    with pytest.raises(DataError, match="exceed the context of 32 tokens"):
        LanguageModelReader(language_model).read("x" * 40)
    with pytest.raises(ConfigError, match="no source to align"):
        LanguageModelReader(language_model).error_rates([], [], "gold")


def test_its_search_is_that_of_the_generator(language_model):
    reader = LanguageModelReader(language_model)
    tree = reader.search("a d", 2)
    (expected,) = language_model.task.generator.continuations(language_model.params, ["a d"])
    best = tree.hypotheses()[0]
    assert list(tree.prefix(best)) == expected.token_ids
    assert tree.nodes[best].log_prob == pytest.approx(expected.log_prob, abs=1e-4)
    # A prefix as long as the continuation may be leaves no room for its end.
    with_room = [prefix for prefix in tree.alternatives(8) if len(prefix) < 4 or prefix[-1] == EOS_ID]
    forced = reader.search("a d", 8).forced
    assert [each.prefix for each in forced] == with_room and with_room
    found = reader.forced("a d", with_room[0])
    assert (found.text, found.log_prob) == (forced[0].text, pytest.approx(forced[0].log_prob, abs=1e-4))
