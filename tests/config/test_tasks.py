"""The task of a run decides which settings its blocks have."""

import pytest

from transformer_jax.config import (
    ConfigError,
    DecoderOnlyConfig,
    ExperimentConfig,
    GenerationConfig,
    TextBatchingConfig,
    TextDataConfig,
    from_dict,
    from_json,
    to_dict,
    to_json,
)
from transformer_jax.config.hyperparameters import structure_of
from transformer_jax.config.overrides import apply_overrides

LANGUAGE_MODEL = {"task": "language_model"}


def refused(values) -> str:
    with pytest.raises(ConfigError) as raised:
        from_dict(values)
    return str(raised.value)


def test_the_blocks_are_those_of_the_task():
    config = from_dict(LANGUAGE_MODEL)
    blocks = config.data, config.batching, config.model, config.decoding
    assert [type(block) for block in blocks] == [
        TextDataConfig,
        TextBatchingConfig,
        DecoderOnlyConfig,
        GenerationConfig,
    ]
    assert from_dict(to_dict(config)) == config
    assert structure_of(config).data.seed == 0


def test_settings_without_a_task_are_those_of_a_translation():
    saved = to_json(ExperimentConfig(seed=5))
    del saved["config"]["task"]
    assert from_json(saved) == ExperimentConfig(seed=5)


def test_blocks_of_another_task_are_refused():
    with pytest.raises(ConfigError, match="^data: DataConfig is not of task=language_model, which has TextDataConfig$"):
        ExperimentConfig(task="language_model")


def test_overrides_reach_the_blocks_of_the_task():
    values = apply_overrides(LANGUAGE_MODEL, [("model.num_layers", "3"), ("decoding.top_p", "0.5")])
    config = from_dict(values)
    assert (config.model.num_layers, config.decoding.top_p) == (3, 0.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "language_modle"}, "task: 'language_modle' is not one of translation, language_model"),
        ({"model": {"num_layers": 3}}, "model.num_layers: not a setting of model.kind=transformer, which has "),
        (
            {"data": {"documents": "lines"}},
            "data.documents: not a setting of task=translation, whose data has source, ",
        ),
        (
            LANGUAGE_MODEL | {"data": {"source_language": "en"}},
            "data.source_language: not a setting of task=language_model",
        ),
        (LANGUAGE_MODEL | {"model": {"kind": "rnn"}}, "model.kind: 'rnn' is not decoder_only"),
        (LANGUAGE_MODEL | {"model": {"num_layer": 3}}, "model.num_layer: unknown key; did you mean model.num_layers?"),
        (
            LANGUAGE_MODEL | {"tokenizer": {"kind": "word"}},
            "tokenizer.kind: 'word' loses text, so bits per byte are not",
        ),
        (
            LANGUAGE_MODEL | {"model": {"max_positions": 64}},
            "model.max_positions: 64 learned positions do not hold a row of batching.context_length=256; use 256",
        ),
        (
            LANGUAGE_MODEL | {"batching": {"tokens_per_update": 1024}},
            "batching.tokens_per_update: 1024 is less than batching.row_multiple=8 rows of 256 positions; raise it to 2048",
        ),
        (
            LANGUAGE_MODEL | {"data": {"source": "text"}},
            "data.train: for data.source=text name a file of text, or else a",
        ),
        (LANGUAGE_MODEL | {"data": {"train": "a.txt"}}, "data.source: grammar reads no file; set data.source=text"),
        (LANGUAGE_MODEL | {"data": {"held_out": 0.0}}, "data.held_out: 0.0 must be above 0 and below 1"),
        (
            LANGUAGE_MODEL | {"data": {"evaluation_stride": 512}},
            "data.evaluation_stride: 512 is more than batching.context",
        ),
        (
            LANGUAGE_MODEL | {"data": {"evaluation_stride": 8}, "batching": {"kind": "packed"}},
            "data.evaluation_stride: rows overlap only with batching.kind=split; set it to 0",
        ),
        (LANGUAGE_MODEL | {"decoding": {"max_new_tokens": 300}}, "decoding.max_new_tokens: 300 tokens do not fit into"),
        (LANGUAGE_MODEL | {"mesh": {"data": 16}}, "batching.row_multiple: 8 rows do not divide into 16 parts"),
    ],
)
def test_what_is_impossible_names_key_and_remedy(values, message):
    assert refused(values).startswith(message)
