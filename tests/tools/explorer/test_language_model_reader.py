"""A language model in the explorer: its search is that of the generator, and a forced one begins with its prefix."""

import jax
import numpy as np
import pytest
from tasks.language_model_settings import language_model_config

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import ConfigError, DataError
from transformer_jax.tasks.language_model.task import LanguageModelTask
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tools.explorer.language_model_reader import LanguageModelReader
from transformer_jax.tools.explorer.searches import require_prefix
from transformer_jax.training.sharding import make_mesh


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    decoding = {"max_new_tokens": 4, "beam_width": 3}
    config = language_model_config(tmp_path_factory.mktemp("cache"), decoding=decoding)
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    task = LanguageModelTask(config, LanguageModelTask.new_tokenizers(config), mesh)
    return TrainedRun(task, jax.jit(task.init_params)(jax.random.key(3)), (1,))


def test_a_text_is_read_causally(trained):
    reading = LanguageModelReader(trained).read("a dog", with_gradients=False)
    assert reading.translation is None
    assert reading.tokens["input"] == ["<s>", *reading.tokens["target"][:-1]]
    (attention,) = reading.attentions
    weights = attention.weights.values[0]
    assert np.triu(weights, 1).max() == 0
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(attention.rollout.values[0], (weights.mean(axis=0) + np.eye(6)) / 2, rtol=1e-5)
    with pytest.raises(DataError, match="exceed the context of 32 tokens"):
        LanguageModelReader(trained).read("x" * 40)
    with pytest.raises(ConfigError, match="no source to align"):
        LanguageModelReader(trained).error_rates([], [], "gold")


def test_its_search_is_that_of_the_generator(trained):
    reader = LanguageModelReader(trained)
    tree = reader.search("a d", 2)
    (expected,) = trained.task.generator.continuations(trained.params, ["a d"])
    best = tree.hypotheses()[0]
    assert list(tree.prefix(best)) == expected.token_ids
    assert tree.nodes[best].log_prob == pytest.approx(expected.log_prob, abs=1e-4)
    # A prefix as long as the continuation may be leaves no room for its end.
    with_room = [prefix for prefix in tree.alternatives(8) if len(prefix) < 4 or prefix[-1] == EOS_ID]
    forced = reader.search("a d", 8).forced
    assert [each.prefix for each in forced] == with_room and with_room
    found = reader.forced("a d", with_room[0])
    assert (found.text, found.log_prob) == (forced[0].text, pytest.approx(forced[0].log_prob, abs=1e-4))


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ([999], "token 1, 999, cannot be chosen"),
        ([-1], "cannot be chosen"),
        ([1 << 40], "cannot be chosen"),
        ([PAD_ID], "token 1, 0, cannot"),
        ([7, BOS_ID], "token 2, 1, cannot"),
        ([5, EOS_ID, 7], "token 2 is the end of the sentence, and 7"),
        ([7] * 4, "no room is left"),
        ([7] * 70 + [EOS_ID], "no room is left"),
    ],
)
def test_prefixes_that_no_hypothesis_begins_with(prefix, message):
    with pytest.raises(DataError, match=message):
        require_prefix(prefix, 300, 4)
    require_prefix([7, 7, 7, EOS_ID], 300, 4)
    require_prefix([], 300, 4)
