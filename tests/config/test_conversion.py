import math

import pytest
from ml_collections import ConfigDict

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    TransformerConfig,
    difference,
    flatten,
    from_dict,
    to_dict,
)


def refused(values) -> str:
    with pytest.raises(ConfigError) as raised:
        from_dict(values)
    return str(raised.value)


def test_nothing_stated_is_the_defaults():
    assert from_dict({}) == ExperimentConfig()


def test_stated_blocks_change_only_what_they_state():
    config = from_dict(ConfigDict({"seed": 3, "model": {"d_model": 256, "num_heads": 4}}).to_dict())
    assert config == ExperimentConfig(seed=3, model=TransformerConfig(d_model=256, num_heads=4))


def test_dictionary_and_back_is_the_same():
    config = ExperimentConfig(seed=7, model=TransformerConfig(d_ff=64, tying="none"))
    assert from_dict(to_dict(config)) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"num_head": 8}}, "model.num_head: unknown key; did you mean model.num_heads?"),
        ({"model": {"learning_rate": 1.0}}, "model.learning_rate: unknown key; did you mean optimizer.learning_rate?"),
        ({"modle": {"d_ff": 8}}, "modle: unknown key; did you mean model?"),
        ({"d_model": 8}, "d_model: unknown key; did you mean model.d_model?"),
        ({"mesh": {"pipeline": 2}}, "mesh.pipeline: unknown key; mesh has data, fsdp, context, tensor"),
        (
            {"data": {"kind": "bpe"}},
            "data.kind: unknown key; did you mean tokenizer.kind or batching.kind or model.kind?",
        ),
    ],
)
def test_an_unknown_key_names_the_nearest(values, message):
    assert refused(values) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"d_ff": "8"}}, "model.d_ff: expected a whole number (int), found '8' (str)"),
        ({"model": {"d_ff": 8.0}}, "model.d_ff: expected a whole number (int), found 8.0 (float)"),
        ({"model": {"d_ff": True}}, "model.d_ff: expected a whole number (int), found True (bool)"),
        ({"model": {"dropout": False}}, "model.dropout: expected a number (float), found False (bool)"),
        ({"tokenizer": {"joint": 1}}, "tokenizer.joint: expected True or False (bool), found 1 (int)"),
        ({"data": {"source": None}}, "data.source: expected text (str), found None (NoneType)"),
        ({"optimizer": {"epsilon": math.inf}}, "optimizer.epsilon: inf is not a finite number"),
        ({"optimizer": {"epsilon": math.nan}}, "optimizer.epsilon: nan is not a finite number"),
    ],
)
def test_a_wrong_type_names_key_value_and_type(values, message):
    assert refused(values) == message


def test_a_value_where_a_block_belongs():
    assert refused({"mesh": 8}) == "mesh: expected a block of settings with data, fsdp, context, tensor, found 8"


def test_a_whole_number_stands_for_a_float_and_becomes_one():
    value = from_dict({"optimizer": {"learning_rate": 2}}).optimizer.learning_rate
    assert value == 2.0
    assert type(value) is float


def test_flatten_names_every_setting_once():
    flat = flatten(ExperimentConfig())
    assert flat["model.d_model"] == 512
    assert flat["seed"] == 0
    assert not any(isinstance(value, dict) for value in flat.values())


def test_difference_is_sorted_and_keeps_sides():
    left = ExperimentConfig(seed=1)
    right = from_dict({"seed": 2, "model": {"d_ff": 64}})
    assert difference(left, right) == [("model.d_ff", 2048, 64), ("seed", 1, 2)]
    assert difference(left, left) == []
