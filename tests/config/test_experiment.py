"""Blocks of a task, the metric that selects, hyperparameters."""

import math

import pytest

from transformer_jax.config import ConfigError, ExperimentConfig, Metric, apply_overrides, from_dict, hyperparameters_of
from transformer_jax.config.conversion import from_json, to_dict, to_json

LANGUAGE_MODEL = {"task": "language_model"}
MORE, LESS = Metric("bleu", "maximize", "BLEU", digits=2), Metric("bits_per_byte", "minimize")


def test_the_best_step_by_direction_and_of_equals_the_newest():
    values = {1: 2.0, 2: 3.0, 3: 3.0, 4: 1.0}
    assert [metric.best_step(values) for metric in (MORE, LESS)] == [3, 4]
    for metric in (MORE, LESS):
        assert metric.best_step({1: 2.0, 9: 2.0, 5: 2.0}) == 9 and not metric.is_better(1.0, 1.0)
        assert metric.best_step({1: math.nan, 2: 0.0, 3: math.nan}) == 2
    assert LESS.is_better(1.0, 2.0) and MORE.is_better(2.0, 1.0)
    assert (ExperimentConfig().selection, from_dict(LANGUAGE_MODEL).selection) == (MORE, LESS)


def test_the_blocks_are_those_of_the_task():
    config = from_dict(apply_overrides(LANGUAGE_MODEL, [("model.num_layers", "3"), ("decoding.top_p", "0.5")]))
    assert (config.model.num_layers, config.decoding.top_p) == (3, 0.5)
    assert from_dict(to_dict(config)) == config
    saved = to_json(ExperimentConfig(seed=5))
    del saved["config"]["task"]
    assert from_json(saved) == ExperimentConfig(seed=5)
    with pytest.raises(ConfigError, match="^data: DataConfig is not one of TextDataConfig, task=language_model$"):
        ExperimentConfig(task="language_model")


TRACED = (
    "optimizer.learning_rate optimizer.warmup_updates training.num_updates optimizer.b1 optimizer.b2 optimizer.epsilon"
)
OF_ADAMW = "optimizer.weight_decay optimizer.clip_norm training.label_smoothing "
OF_TRANSFORMER = "model.dropout model.embedding_dropout model.attention_dropout model.activation_dropout"


def changed(config: ExperimentConfig, *overrides: tuple[str, str]) -> ExperimentConfig:
    return from_dict(apply_overrides(to_dict(config), overrides))


def numbers_of(config: ExperimentConfig) -> dict[str, float | None]:
    found = hyperparameters_of(config)
    return {name: value for name, value in found._asdict().items() if name != "rates"} | found.rates._asdict()


@pytest.mark.parametrize(
    ("base", "optional"),
    [
        ({"optimizer": {"name": "adamw"}}, OF_ADAMW + OF_TRANSFORMER),
        ({"model": {"kind": "rnn"}}, "model.scheduled_sampling model.dropout"),
    ],
)
def test_another_number_is_another_argument_and_a_part_that_is_off_is_none(base, optional):
    config = from_dict(base)
    for key in f"{TRACED} {optional}".split():
        name = key.rpartition(".")[2]
        value = {"warmup_updates": "7", "num_updates": "99", "b1": "0.0"}.get(name, "0.3")
        other = changed(config, (key, value))
        assert numbers_of(other) == numbers_of(config) | {name: float(value)}
        if key in optional.split():
            assert numbers_of(changed(other, (key, "0.0")))[name] is None


def test_a_score_is_written_with_what_was_scored():
    assert MORE.score(21.268, "96 of 1,014 sentences, greedy") == "BLEU 21.27 (96 of 1,014 sentences, greedy)"
    assert LESS.score(1.5, "") == "bits per byte 1.5000"
    assert (MORE.heading("1,014 sentences, beam 4"), MORE.heading("")) == ("BLEU (1,014 sentences, beam 4)", "BLEU")
