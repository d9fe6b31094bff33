"""The size of a run follows from its corpus and a budget."""

import pytest

from transformer_jax.config import ConfigError, resolve
from transformer_jax.config.sizing import (
    EFFICIENCY,
    FEWEST_VALIDATIONS,
    FIRST_VALIDATION,
    MOST_EPOCHS,
    MOST_VALIDATIONS,
    SIZES,
    VALIDATION,
    Corpus,
    plan_of,
    seconds_of,
)

FLOPS = 2e11


def test_more_text_and_more_time_give_larger_models():
    small, medium, large = (plan_of(Corpus(pairs, 12), 3600, FLOPS) for pairs in (5_000, 29_000, 300_000))
    assert (small.size, medium.size, large.size) == (SIZES[0], SIZES[2], SIZES[1])
    assert [plan_of(Corpus(300_000, 12), hours * 3600, FLOPS).size for hours in (4, 10)] == [SIZES[2], SIZES[3]]
    assert small.epochs == pytest.approx(MOST_EPOCHS, rel=0.05)
    assert medium.epochs >= medium.size.epochs
    assert all(plan.seconds <= 3600 * 1.01 for plan in (small, medium, large))


def test_a_short_run_has_small_batches_and_little_dropout():
    minutes, hour = (plan_of(Corpus(29_000, 12), seconds, FLOPS) for seconds in (180, 3600))
    assert (minutes.size.tokens_per_update, hour.size.tokens_per_update) == (768, 1536)
    assert minutes.size.learning_rate == pytest.approx(SIZES[1].learning_rate * 0.5**0.5, rel=0.01)
    assert minutes.settings()["model.dropout"] < hour.settings()["model.dropout"] <= hour.size.dropout
    assert plan_of(Corpus(29_000, 30), 180, FLOPS).settings()["batching.packed_length"] == 128
    assert plan_of(Corpus(29_000, 12), 180, FLOPS, {"batching.tokens_per_update": 4096}).size.tokens_per_update == 4096


def test_without_time_the_smallest_model_is_trained_for_what_there_is_or_nothing():
    plan = plan_of(Corpus(10**7, 25), 200, FLOPS)
    assert (plan.size.layers, plan.size.d_model) == (2, 128)
    assert plan.seconds <= 202
    with pytest.raises(
        ConfigError, match=r"--budget: 30 s do not pay start-up, compilation and 20 updates here; give \dm"
    ):
        plan_of(Corpus(10**7, 25), 30, FLOPS)
    # What the message advises is enough.
    assert plan_of(Corpus(10**7, 25), 180, FLOPS).updates >= 20


def test_every_plan_is_a_run():
    for pairs, seconds in ((10, 300), (29_000, 600), (10**6, 10**5), (10**7, 10**6)):
        plan = plan_of(Corpus(pairs, 20), seconds, FLOPS)
        overrides = [(key, str(value)) for key, value in plan.settings().items()]
        config = resolve("text", [("data.train", "a.en,a.de"), *overrides])
        assert config.training.num_updates == plan.updates >= 20


def test_validations_take_a_twentieth_of_the_time_and_the_last_one_ends_the_run():
    for pairs, seconds in ((10_000, 90), (29_000, 200), (29_000, 600), (29_000, 3600), (300_000, 10**5)):
        plan = plan_of(Corpus(pairs, 12), seconds, FLOPS)
        settings = plan.settings()
        updates, every = settings["training.num_updates"], settings["training.evaluate_every"]
        number = updates // every + (updates % every > 0)
        assert number <= plan.validations
        assert updates % every == 0 or updates % every > every / 2
        spent = FIRST_VALIDATION + plan.validations * VALIDATION * plan.size.parameters
        assert plan.validations == FEWEST_VALIDATIONS or spent <= 0.05 * plan.seconds * EFFICIENCY * FLOPS
    assert plan.validations == MOST_VALIDATIONS
    assert plan_of(Corpus(10_000, 12), 75, FLOPS).validations == FEWEST_VALIDATIONS


def test_a_budget_is_a_number_with_a_unit():
    assert [seconds_of(text) for text in ("90s", "20m", "1.5h", "2 d")] == [90, 1200, 5400, 172800]
    for text in ("20", "0m", "an hour"):
        with pytest.raises(ConfigError, match="--budget: .* is not a time; write 90s, 20m, 2h or 1d"):
            seconds_of(text)
