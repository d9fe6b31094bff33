"""Size and length of a run follow from its text and a budget."""

import itertools
import math
from functools import partial

import numpy as np
import pytest

from transformer_jax.config import ConfigError, resolve
from transformer_jax.tools.sizing import language_model_sizes, translation_sizes
from transformer_jax.tools.sizing.language_model_sizes import plan_language_model
from transformer_jax.tools.sizing.plan import seconds_of
from transformer_jax.tools.sizing.text_statistics import TextStatistics
from transformer_jax.tools.sizing.translation_sizes import SIZES, CorpusStatistics, plan_translation
from transformer_jax.tools.word_vectors.task.word_vector_sizes import plan_word_vectors

FLOPS = 2e11


def size_of(settings) -> tuple[int, ...]:
    return tuple(settings[f"model.{name}"] for name in ("num_encoder_layers", "d_model", "d_ff"))


def text_of(num_bytes, **changed):
    words, lines = num_bytes / 5.5, num_bytes / 100
    return TextStatistics(num_bytes, num_bytes, words, lines, 0, 1, 80)._replace(**changed)


JAPANESE = text_of(3e6, characters=1e6, words=5e4, lines=5e4, alphabet=1500, has_words=False)


def planned(pairs: int, seconds: float, words: float = 12, **stated: object) -> dict:
    return plan_translation(CorpusStatistics(pairs, words), seconds, FLOPS, stated).settings


def parameters_of(plan) -> int:
    values = {name: plan.settings[key] for name, key in translation_sizes.KEYS_OF_SIZE.items()}
    return translation_sizes.Size(pairs=0, min_tokens=0, **values).parameters


@pytest.mark.parametrize("flops", [6e10, 2e11, 3e12])
@pytest.mark.parametrize("words", [3, 12, 25])
def test_more_text_or_more_time_never_gives_a_smaller_model(flops, words):
    pairs = [100, 3_000, 9_999, 10_000, 29_000, 199_999, 200_000, 500_000, 2_000_000, 40_000_000]
    seconds = [240, 600, 1200, 1800, 3600, 5400, 12 * 3600, 28 * 3600, 100 * 3600, 1000 * 3600]
    grid = [[plan_translation(CorpusStatistics(number, words), time, flops) for time in seconds] for number in pairs]
    sizes = np.array([[parameters_of(plan) for plan in row] for row in grid])
    assert (np.diff(sizes, axis=0) >= 0).all() and (np.diff(sizes, axis=1) >= 0).all()
    for row in grid:
        for plan, time in zip(row, seconds, strict=True):
            epochs = "seldom help" in plan.sentence
            assert plan.seconds <= 1.01 * time and (plan.seconds >= 0.9 * time) != epochs
            assert plan.settings["training.num_updates"] <= plan.max_updates


@pytest.mark.parametrize("flops", [6e10, 2e11, 3e12])
@pytest.mark.parametrize("changed", [{}, {"alphabet": 1500, "has_words": False}])
def test_more_text_or_more_time_never_gives_a_smaller_language_model_nor_fewer_operations(flops, changed):
    texts = [text_of(size, **changed) for size in (1e4, 8e4, 8.5e4, 3e5, 1e6, 2e6, 1e7, 1e8, 1e9, 1e10)]
    seconds = [120, 180, 600, 1800, 3600, 6 * 3600, 28 * 3600, 100 * 3600, 1000 * 3600]
    grid = [[plan_language_model(text, time, flops) for time in seconds] for text in texts]
    keys = "model.num_layers", "model.d_model"
    sizes = np.array([[math.prod(plan.settings[key] for key in keys) for plan in row] for row in grid])
    assert (np.diff(sizes, axis=0) >= 0).all() and (np.diff(sizes, axis=1) >= 0).all()
    used = np.array([[plan.seconds for plan in row] for row in grid])
    assert (np.diff(used, axis=1) >= 0).all()
    # Pieces have fewer tokens an epoch than bytes, and a plan of whole updates may end an update
    # earlier.
    kinds = [row[0].settings["tokenizer.kind"] for row in grid]
    is_same = np.array([before == after for before, after in itertools.pairwise(kinds)])
    assert (np.diff(used, axis=0)[is_same] >= -0.01 * used[:-1][is_same]).all() and is_same.sum() >= 8
    for row in grid:
        for plan, time in zip(row, seconds, strict=True):
            is_left = "of the budget are left over: more than 16 epochs" in plan.sentence
            assert plan.seconds <= 1.01 * time and (plan.seconds >= 0.9 * time) != is_left
            assert plan.settings["training.num_updates"] <= plan.max_updates


def test_dropout_grows_with_epochs_and_with_parameters_for_a_token():
    times = (25, 90, 180, 1800, 36_000)
    dropouts = [plan_language_model(text_of(1e6), time, FLOPS).settings["model.dropout"] for time in times]
    assert dropouts == sorted(dropouts) and dropouts[0] == 0 and dropouts[-1] >= 0.3
    # A text has more bytes than pieces.
    assert plan_language_model(text_of(1e6), 1800, FLOPS, {"tokenizer.kind": "byte"}).settings["model.dropout"] == 0.1
    small = {"model.d_model": 32, "model.num_layers": 1}
    assert plan_language_model(text_of(1e6), 36_000, FLOPS, small).settings["model.dropout"] == 0.1
    assert plan_language_model(text_of(1e9), 36_000, FLOPS).settings["model.dropout"] == 0


def test_rates_are_of_muon_and_lower_for_another_optimizer():
    rates = [
        plan_language_model(text_of(2e6), 60, FLOPS, {"optimizer.name": name}).settings["optimizer.learning_rate"]
        for name in ("muon", "adamw")
    ]
    assert rates == [language_model_sizes.SIZES[0].learning_rate, pytest.approx(0.6 * rates[0])]
    stated = {"optimizer.name": "adamw", "optimizer.learning_rate": 2e-3}
    assert plan_language_model(text_of(2e6), 60, FLOPS, stated).settings["optimizer.learning_rate"] == 2e-3


@pytest.mark.parametrize(
    "parameters",
    [
        [size.parameters for size in SIZES],
        [size._replace(d_ff=4 * size.d_model).parameters for size in language_model_sizes.SIZES],
    ],
)
def test_a_size_has_at_most_about_twice_the_parameters_of_the_one_before(parameters):
    assert all(1 < larger / smaller < 2.2 for smaller, larger in itertools.pairwise(parameters))


def test_a_vocabulary_that_the_text_supports_chooses_no_other_size():
    corpus, stated = CorpusStatistics(75_000, 12), {"tokenizer.vocabulary_size": 6000}
    for seconds in (11_000, 12_000, 13_000):
        expected, actual = (
            plan_translation(corpus, seconds, FLOPS, vocabulary=vocabulary).settings for vocabulary in (None, stated)
        )
        assert actual["model.d_model"] == expected["model.d_model"]
        assert actual["tokenizer.vocabulary_size"] == 6000


def test_batches_are_never_smaller_than_the_smallest():
    for d_model in (256, 512, 1024, 2048):
        plan = plan_translation(CorpusStatistics(70_000, 12), 20_000, FLOPS, {"model.d_model": d_model})
        assert plan.settings["batching.tokens_per_update"] >= 768


def test_small_corpora_get_small_vocabularies_and_at_most_forty_epochs():
    small, medium, large = (planned(pairs, 3600) for pairs in (5_000, 29_000, 300_000))
    vocabularies = [plan["tokenizer.vocabulary_size"] for plan in (small, medium, large)]
    assert vocabularies == [SIZES[0].vocabulary, SIZES[2].vocabulary, SIZES[2].vocabulary]
    tokens = small["training.num_updates"] * small["batching.tokens_per_update"]
    assert tokens / CorpusStatistics(5_000, 12).tokens == pytest.approx(translation_sizes.MAX_EPOCHS, rel=0.05)


def test_a_corpus_of_few_tokens_gets_more_epochs_but_never_more_updates_than_a_larger_one():
    corpora = [CorpusStatistics(pairs, 12) for pairs in (10, 300, 1000, 2000, 3000, 4000, 10_000)]
    epochs = [corpus.max_epochs for corpus in corpora]
    assert epochs == sorted(epochs, reverse=True) and (epochs[0], epochs[-1]) == (120, 40)
    updates = [plan_translation(corpus, 7200, FLOPS).settings["training.num_updates"] for corpus in corpora]
    assert updates == sorted(updates)
    assert "more than 120 epochs" in plan_translation(corpora[1], 7200, FLOPS).sentence


def test_without_time_the_smallest_model_is_trained_or_none():
    plan = plan_translation(CorpusStatistics(10**7, 25), 200, FLOPS)
    assert size_of(plan.settings) == (2, 128, 256) and plan.seconds <= 202
    with pytest.raises(ConfigError, match=r"--budget: 30 s are too short: .* 20 updates take about .* here; give 1m"):
        plan_translation(CorpusStatistics(10**7, 25), 30, FLOPS)
    # The advice of the message is enough.
    assert plan_translation(CorpusStatistics(10**7, 25), 180, FLOPS).settings["training.num_updates"] >= 20


@pytest.mark.parametrize(("pairs", "seconds"), [(10, 300), (10_000, 90), (29_000, 600), (29_000, 3600), (10**7, 10**6)])
def test_every_plan_is_a_run_with_a_few_validations(pairs, seconds):
    plan = plan_translation(CorpusStatistics(pairs, 20), seconds, FLOPS)
    assert plan.seconds <= 1.01 * seconds
    overrides = [(key, str(value)) for key, value in plan.settings.items()]
    config = resolve("text", [("data.train", "a.en,a.de"), *overrides])
    assert config.optimizer.schedule == "wsd"
    updates, every = config.training.num_updates, config.training.evaluate_every
    assert updates >= 20 and (updates % every == 0 or updates % every > every / 2)
    validations, batches = -(-updates // every), config.training.validation_sentences / translation_sizes.VALIDATED
    assert 1 <= validations <= translation_sizes.MAX_VALIDATIONS and 1 <= batches <= 20
    # Enough sentences to choose between checkpoints, or no other checkpoint in the decay of the
    # learning rate.
    assert (validations == translation_sizes.MAX_VALIDATIONS and batches >= 4) or every >= 0.2 * updates


def test_a_budget_is_a_number_with_a_unit():
    assert [seconds_of(text) for text in ("90s", "20m", "1.5h", "2 d")] == [90, 1200, 5400, 172800]
    for text in ("20", "0m", "an hour", "", "\u0663m", 1200):
        with pytest.raises(ConfigError, match="--budget: .* is not a time; write 90s, 20m, 2h or 1d"):
            seconds_of(text)


@pytest.mark.parametrize("text", [text_of(1e3), text_of(2e6), text_of(1e10), JAPANESE])
@pytest.mark.parametrize(
    ("plan", "recipe"), [(plan_language_model, "language_model"), (plan_word_vectors, "word_vectors")]
)
def test_every_plan_for_text_is_a_run_in_its_time_and_more_time_is_never_less(text, plan, recipe):
    before = {"training.num_updates": 0, "model.d_model": 0}
    for seconds in (30, 180, 3600, 36_000, 360_000):
        found = plan(text, seconds, FLOPS)
        overrides = [("data.train", "a.txt"), *((key, str(value)) for key, value in found.settings.items())]
        config = resolve(recipe, overrides)
        assert recipe == "word_vectors" or config.optimizer.schedule == "wsd"
        assert config.training.num_updates >= 20 and found.seconds <= 1.01 * seconds
        assert config.training.num_updates <= 5.2 * config.training.evaluate_every
        assert config.model.d_model >= before["model.d_model"]
        if config.model.d_model == before["model.d_model"]:
            assert config.training.num_updates >= before["training.num_updates"]
        before = found.settings
    with pytest.raises(ConfigError, match=r"--budget: 3 s are too short: .* 20 updates take about \d+ s here; give 1m"):
        plan(text, 3, FLOPS)


def test_stated_settings_stay_and_count():
    stated = {"model.d_model": 64, "training.num_updates": 77, "data.documents": "paragraphs"}
    stated |= {"batching.context_length": 32}
    found = plan_language_model(text_of(2e6), 60, FLOPS, stated)
    assert {key: found.settings[key] for key in stated} == stated
    assert found.settings["model.max_positions"] == 32
    resolve("language_model:text", [("data.train", "a"), *((key, str(value)) for key, value in found.settings.items())])
    wide = plan_language_model(text_of(2e6), 60, FLOPS, {"batching.context_length": 512})
    assert wide.settings["batching.tokens_per_update"] == 512 * 8
    for said in ("data.documents=paragraphs", "context of 32 tokens", "77 updates"):
        assert said in found.sentence


def test_a_stated_size_of_the_model_changes_neither_vocabulary_nor_batches():
    text, pairs = text_of(1e8), CorpusStatistics(29_000, 12)
    for plan in (partial(plan_language_model, text), partial(plan_translation, pairs)):
        hour = plan(3600, FLOPS).settings
        assert plan(3600, FLOPS, {key: hour[key] for key in hour if key.startswith("model.")}).settings == hour
    for seconds in (600, 3600, 36_000):
        chosen = plan_language_model(text, seconds, FLOPS).settings
        small, wide = (
            plan_language_model(text, seconds, FLOPS, {"model.d_model": width}).settings for width in (60, 900)
        )
        for key in ("tokenizer.vocabulary_size", "batching.tokens_per_update"):
            assert small[key] == chosen[key] == wide[key]
        assert (small["model.d_ff"], wide["model.d_ff"], wide["model.num_heads"] % 2) == (240, 3600, 0)
        assert small["optimizer.learning_rate"] >= chosen["optimizer.learning_rate"] > wide["optimizer.learning_rate"]
    wide = plan_translation(pairs, 3600, FLOPS, {"model.d_model": 256}).settings
    assert (wide["model.d_ff"], wide["tokenizer.vocabulary_size"]) == (512, hour["tokenizer.vocabulary_size"])
    assert wide["optimizer.learning_rate"] < hour["optimizer.learning_rate"]
    for width in (
        planned(29_000, 600, **{"model.num_heads": 3}),
        plan_language_model(text, 180, FLOPS, {"model.num_heads": 3}).settings,
    ):
        assert width["model.d_model"] % 6 == 0


def test_a_decoder_of_fewer_layers_is_counted():
    student = {"model.num_decoder_layers": 1}
    assert planned(10**6, 300, **student)["training.num_updates"] > planned(10**6, 300)["training.num_updates"]
    assert planned(29_000, 3600, **student)["model.num_decoder_layers"] == 1
    size = SIZES[2]
    assert size.parameters == size._replace(decoder_layers=size.layers).parameters
    assert size.parameters - size._replace(decoder_layers=3).parameters == 8 * 128**2 + 2 * 128 * 256


@pytest.mark.parametrize(
    "plan", [partial(plan_translation, CorpusStatistics(29_000, 12)), partial(plan_language_model, text_of(2e6))]
)
def test_noam_has_the_peak_of_the_other_schedules(plan):
    for fixed in ({}, {"optimizer.warmup_updates": 77}):
        peak, factor = (
            plan(600, FLOPS, {**fixed, "optimizer.schedule": schedule}).settings for schedule in ("wsd", "noam")
        )
        warmup = fixed.get("optimizer.warmup_updates", factor["optimizer.warmup_updates"])
        highest = factor["optimizer.learning_rate"] * (factor["model.d_model"] * warmup) ** -0.5
        assert highest == pytest.approx(peak["optimizer.learning_rate"], rel=1e-3)


def test_of_a_text_that_is_too_short_for_few_epochs_the_plan_says_so():
    for plan in (plan_translation(CorpusStatistics(1, 5), 300, FLOPS), plan_language_model(text_of(50), 300, FLOPS)):
        assert plan.sentence.endswith("the text is so short that 20 updates, the minimum, are many epochs")
        assert plan.settings["training.num_updates"] == plan.max_updates == 20
