"""A run that does not learn says so."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from run_settings import tiny_config
from run_steps import train

from transformer_jax.config import DataError, to_json
from transformer_jax.data.pair_encoding import joined
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.store_statistics import unigram_entropy
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runs import learning_signs
from transformer_jax.runs.learning_signs import LearningSigns, signs_of
from transformer_jax.tasks.translation.evaluator import distinct_share, first_pairs
from transformer_jax.tools.study.run_summary import summarize

ENTROPY = "validation/cross_attention_entropy"
GUESSING = {"unigram_entropy": 4.0}
HEALTHY = {"step": 12, "train/nll": 2.0, "validation/bleu": 20.0, ENTROPY: 0.6, "validation/distinct_outputs": 0.9}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({ENTROPY: 0.995}, "every head of cross attention is uniform"),
        ({"train/nll": 3.99}, "by guessing tokens by their frequency"),
        ({"validation/distinct_outputs": 0.02}, "different sources get the same output"),
        ({"step": 1, ENTROPY: 1.0}, None),  # too early to say
    ],
)
def test_each_sign_is_one_sentence_with_its_number(cache, changed, words):
    found = LearningSigns(tiny_config(cache), GUESSING, [HEALTHY | changed]).sentences()
    assert len(found) == (words is not None)
    assert all(words in sentence for sentence in found)


def test_a_run_that_ends_within_its_warm_up_says_so(cache):
    config = tiny_config(cache)
    for schedule in ("noam", "constant"):
        optimizer = replace(config.optimizer, schedule=schedule, warmup_updates=400)
        record = HEALTHY | {"train/nll": 3.99, ENTROPY: 0.995}
        signs = LearningSigns(replace(config, optimizer=optimizer), GUESSING, [record]).sentences()
        assert len(signs) == 2 and all("within optimizer.warmup_updates=400" in sign for sign in signs)
        assert all("set optimizer.warmup_updates=1," in sign for sign in signs)


def test_the_remedy_follows_from_the_run(cache):
    """Of few updates more, of few pairs more text; other settings only where neither explains
    it."""
    config, record = tiny_config(cache), HEALTHY | {"train/nll": 3.99, ENTROPY: 0.995}
    post = replace(config, model=replace(config.model, normalization="post"))
    text = replace(post, data=replace(post.data, source="tfds", name="a/b"))
    for settings, pairs, words in (
        (post, None, "12 updates are few: train longer"),
        (text, 300, "300 training pairs are few: give more text"),
        (post, 300, "12 updates are few: train longer"),
        (text, 50_000, "12 updates are few: train longer"),
    ):
        signs = LearningSigns(settings, GUESSING | {"training": {"kept": pairs}}, [record]).sentences()
        assert len(signs) == 2 and all(words in sign and "normalization" not in sign for sign in signs)
    long = replace(post, training=replace(post.training, num_updates=1000))
    signs = LearningSigns(long, {"training": {"kept": 50_000}}, [record | {"step": 1000}]).sentences()
    assert "use model.normalization=pre" in signs[0]


def test_a_metric_that_stays_zero_and_a_gradient_that_explodes(cache):
    def signs(records, config):
        return LearningSigns(config, {}, records).sentences()

    config = tiny_config(cache)
    clipped = replace(config, optimizer=replace(config.optimizer, clip_norm=1.0))
    zeros = [{"step": step, "validation/bleu": 0.0} for step in (4, 8, 12)]
    assert "BLEU is 0.00 for 3 validations" in signs(zeros, config)[0]
    assert not signs([*zeros[:2], {"step": 12, "validation/bleu": 0.3}], config)
    negative = [{**zero, "validation/bleu": -0.9 / zero["step"]} for zero in zeros]
    assert not signs(negative, config)
    norms = [{"step": step, "train/gradient_norm": 1.5**step} for step in range(1, 25)]
    assert "times optimizer.clip_norm" in signs(norms, clipped)[0]
    assert not signs(norms, config), "only where the gradient is clipped"
    assert not signs([{**norm, "train/gradient_norm": 40.0} for norm in norms], clipped), "large, but not growing"


def test_a_report_knows_the_length_of_a_run_that_was_shortened_or_is_made_longer(cache, tmp_path, monkeypatch):
    config, run = tiny_config(cache, num_updates=1000), RunDirectory(tmp_path)
    run.metrics.write_text(json.dumps(HEALTHY | {ENTROPY: 1.0}) + "\n")
    for planned, found in ((12, 0), (1000, 1)):
        progress = {"counters": {"num_updates": 12}, "config": to_json(tiny_config(cache, num_updates=planned))}
        monkeypatch.setattr(learning_signs, "written_progress", lambda _, progress=progress: iter([(12, progress)]))
        assert len(signs_of(run, config)) == found
    run.data_report.write_text('{"unigram_entropy": "four"}')
    with pytest.raises(DataError, match="not the data report of a run"):
        signs_of(run, config)


@pytest.mark.slow
def test_a_run_that_collapses_says_so_at_each_validation_at_its_end_and_in_the_report(cache, tmp_path, capfd):
    config = tiny_config(cache)
    config = replace(config, optimizer=replace(config.optimizer, learning_rate=2.0))
    outcome = train(config, tmp_path)
    assert outcome.signs == tuple(json.loads((tmp_path / "outcome.json").read_text())["signs"])
    assert "update 12: WARNING: " in capfd.readouterr().err
    assert "guessing tokens by their frequency" in " ".join(outcome.signs)
    assert summarize(tmp_path, "run").signs


def test_the_loss_of_guessing_is_the_entropy_of_the_frequencies():
    assert unigram_entropy(np.array([5, 5, 9, 9], np.uint16)) == pytest.approx(np.log(2))
    # Each of both corpora is half of an epoch.
    ids = np.array([5, 5, 9, 9, 9, 9], np.uint16)
    assert unigram_entropy(ids, {"a": 2, "b": 4}, {"a": 2.0, "b": 1.0}) == pytest.approx(np.log(2))


def test_equal_sources_may_have_equal_outputs_and_empty_ones_do_not_count():
    labels = [SentencePair(str(number), "yes" if number % 2 else "no") for number in range(50)]
    assert distinct_share(labels, [pair.target for pair in labels]) == 1, "all the outputs that there can be"
    pairs = [SentencePair(source, target) for source, target in zip("aabc", "xxyz", strict=True)]
    assert distinct_share(pairs, ["x", "x", "y", " "]) == pytest.approx(2 / 3)


def test_the_batch_of_the_entropy_stays_within_the_positions_of_the_model():
    side = SimpleNamespace(sentences=lambda pairs: joined([[5] * 39 + [2]] * len(pairs)))
    store = SimpleNamespace(lengths=lambda limit: np.full((2, 3), 40), source_side=side, target_side=side)
    for longest, width in ((None, 64), (48, 48)):
        assert first_pairs(store, 1, longest).source.ids.shape == (32, width)
