"""Blocks of a task, the metric that selects, hyperparameters."""

import math

import pytest
from ml_collections import ConfigDict

from transformer_jax.config import (
    ConfigError,
    DecoderOnlyConfig,
    ExperimentConfig,
    GenerationConfig,
    Metric,
    TextBatchingConfig,
    TextDataConfig,
    apply_overrides,
    from_dict,
    from_json,
    hyperparameters_of,
    to_dict,
    to_json,
)

LANGUAGE_MODEL = {"task": "language_model"}
MORE, LESS = Metric("bleu", "maximize", "BLEU", digits=2), Metric("bits_per_byte", "minimize")


def test_the_best_step_by_direction_and_of_equals_the_newest():
    values = {1: 2.0, 2: 3.0, 3: 3.0, 4: 1.0}
    assert [metric.best_step(values) for metric in (MORE, LESS)] == [3, 4]
    for metric in (MORE, LESS):
        assert metric.best_step({1: 2.0, 9: 2.0, 5: 2.0}) == 9
        assert metric.best_step({1: math.nan, 2: 0.0, 3: math.nan}) == 2
        assert not metric.is_better(1.0, 1.0)
    assert LESS.is_better(1.0, 2.0) and MORE.is_better(2.0, 1.0)
    assert (ExperimentConfig().selection, from_dict(LANGUAGE_MODEL).selection) == (MORE, LESS)
    assert (LESS.key, LESS.label, MORE.label) == ("validation/bits_per_byte", "bits per byte", "BLEU")


def test_the_blocks_are_those_of_the_task():
    config = from_dict(LANGUAGE_MODEL)
    blocks = [type(block) for block in (config.data, config.batching, config.model, config.decoding)]
    assert blocks == [TextDataConfig, TextBatchingConfig, DecoderOnlyConfig, GenerationConfig]
    assert from_dict(to_dict(config)) == config
    saved = to_json(ExperimentConfig(seed=5))
    del saved["config"]["task"]
    assert from_json(saved) == ExperimentConfig(seed=5)
    with pytest.raises(ConfigError, match="^data: DataConfig is not one of TextDataConfig, task=language_model$"):
        ExperimentConfig(task="language_model")
    config = from_dict(apply_overrides(LANGUAGE_MODEL, [("model.num_layers", "3"), ("decoding.top_p", "0.5")]))
    assert (config.model.num_layers, config.decoding.top_p) == (3, 0.5)


OF_STEP = {
    "optimizer.learning_rate": "0.3",
    "optimizer.warmup_updates": "7",
    "training.num_updates": "99",
    "optimizer.b1": "0.0",
    "optimizer.b2": "0.5",
    "optimizer.epsilon": "1e-4",
}
OPTIONAL = {
    "optimizer.weight_decay": "0.2",
    "optimizer.clip_norm": "0.5",
    "training.label_smoothing": "0.3",
    "model.dropout": "0.3",
    "model.embedding_dropout": "0.4",
    "model.attention_dropout": "0.5",
    "model.activation_dropout": "0.6",
}


def changed(config: ExperimentConfig, *overrides: tuple[str, str]) -> ExperimentConfig:
    return from_dict(apply_overrides(ConfigDict(to_dict(config)), overrides))


def numbers_of(config: ExperimentConfig) -> dict[str, float | None]:
    found = hyperparameters_of(config)
    return {name: value for name, value in found._asdict().items() if name != "rates"} | found.rates._asdict()


@pytest.mark.parametrize("base", [{"optimizer": {"name": "adamw"}}, {"model": {"kind": "rnn"}}])
def test_another_number_is_another_argument_and_a_part_that_is_off_is_none(base):
    config = from_dict(base)
    keys = OF_STEP | OPTIONAL
    if base.get("model"):
        keys = OF_STEP | {"model.scheduled_sampling": "1.0", "model.dropout": "0.3"}
    for key, value in keys.items():
        name = key.rpartition(".")[2]
        other = changed(config, (key, value))
        assert numbers_of(other) == numbers_of(config) | {name: float(value)}
        if key not in OF_STEP:
            assert numbers_of(changed(other, (key, "0.0")))[name] is None
