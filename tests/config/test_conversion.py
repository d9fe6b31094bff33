"""Settings as dictionaries, text of the command line and JSON, and the errors for unknown keys and
wrong types."""

import math

import pytest
from ml_collections import ConfigDict

from transformer_jax.commands.flags import joined_files
from transformer_jax.config import ConfigError, ExperimentConfig, TransformerConfig, from_dict
from transformer_jax.config.conversion import apply_overrides, to_dict


def test_stated_settings_change_and_the_others_keep_their_defaults():
    assert from_dict({}) == ExperimentConfig()
    config = from_dict(ConfigDict({"seed": 3, "model": {"d_model": 256, "num_heads": 4}}).to_dict())
    assert config == ExperimentConfig(seed=3, model=TransformerConfig(d_model=256, num_heads=4))
    assert from_dict(to_dict(config)) == config
    value = from_dict({"optimizer": {"learning_rate": 2}}).optimizer.learning_rate
    assert value == 2.0 and type(value) is float


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"num_head": 8}}, "model.num_head: unknown key; did you mean model.num_heads?"),
        ({"mesh": {"pipeline": 2}}, "mesh.pipeline: unknown key; mesh has data, fsdp, context, tensor"),
        ({"data": {"kind": "bpe"}}, "data.kind: unknown key; did you mean tokenizer.kind or batching.kind or"),
        ({"task": "language_modle"}, "task: 'language_modle' is not one of translation, language_model"),
        ({"task": ["parsing"]}, "task: expected text (str), found ['parsing']"),
        ({"model": {"kind": ["rnn"]}}, "model.kind: ['rnn'] is not one of transformer, rnn"),
        ({"model": {"num_layers": 3}}, "model.num_layers: not a setting of model.kind=transformer, which has"),
        ({"model": {"d_ff": "8"}}, "model.d_ff: expected a whole number (int), found '8' (str)"),
        ({"optimizer": {"epsilon": math.nan}}, "optimizer.epsilon: nan is not a finite number"),
    ],
)
def test_an_unknown_key_or_a_wrong_type_is_named_with_the_remedy(values, message):
    with pytest.raises(ConfigError) as raised:
        from_dict(values)
    assert str(raised.value).startswith(message)


def test_text_is_read_by_the_type_of_the_setting_and_the_last_wins():
    text = "model.d_ff=512 optimizer.learning_rate=2e-3 tokenizer.joint=false data.directory=12 model.d_ff=256"
    found = apply_overrides({"model": {"d_ff": 1, "d_model": 2}}, [each.split("=") for each in text.split()])
    others = {"optimizer": {"learning_rate": 0.002}, "tokenizer": {"joint": False}, "data": {"directory": "12"}}
    assert found == {"model": {"d_ff": 256, "d_model": 2}} | others
    for word in ("true", "1", "yes"):
        assert apply_overrides({}, [("tokenizer.joint", word)]) == {"tokenizer": {"joint": True}}


def test_two_files_are_a_pair_if_only_a_suffix_or_language_differs_and_the_last_wins_otherwise():
    def train(*files):
        return apply_overrides({}, joined_files([("data.train", file) for file in files]))["data"]["train"]

    for files in (
        ["v1.0/a.b.en", "v1.0/a.b.de"],
        ["a.en.gz", "a.de.gz"],
        ["a.en.txt", "a.de.txt"],
        ["c/en.txt", "c/de.txt"],
        ["b_en-1", "b_de-1"],
        ["eng/t.txt", "deu/t.txt"],
    ):
        assert train("x.tsv", *files) == ",".join(files)
        assert train(*files, "x.y") == "x.y"
    for files in (
        ["a.txt", "b.txt"],
        ["one.txt", "two.txt"],
        ["v1.0/c.tsv", "v1.1/c.tsv"],
        ["a.en", "a.en"],
        ["w=a.txt b=b.txt", "w=a.txt b=c.txt"],
    ):
        assert train(*files) == files[1]


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("tokeniser.kind", "bpe", "tokeniser.kind: unknown key; did you mean tokenizer.kind?"),
        ("mesh", "8", "mesh: is a block; set keys of it (mesh=data=VALUE,...): data, fsdp, context, tensor"),
        ("model.d_ff", "2.5", "model.d_ff: expected a whole number (int), found '2.5'"),
        ("tokenizer.joint", "maybe", "tokenizer.joint: expected True or False (bool), found 'maybe'"),
    ],
)
def test_overrides_that_cannot_be_read_are_refused(key, text, message):
    with pytest.raises(ConfigError) as raised:
        apply_overrides({}, [(key, text)])
    assert str(raised.value) == message
