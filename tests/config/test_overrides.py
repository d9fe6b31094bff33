import pytest
from ml_collections import ConfigDict

from transformer_jax.config import ConfigError, apply_overrides
from transformer_jax.config.overrides import spelled_out


def test_text_is_read_by_the_type_of_the_setting_and_the_last_wins():
    overrides = [
        ("model.d_ff", "512"),
        ("optimizer.learning_rate", "2e-3"),
        ("tokenizer.joint", "false"),
        ("data.directory", "12"),
        ("model.d_ff", "256"),
    ]
    assert apply_overrides({"model": {"d_ff": 1, "d_model": 2}}, overrides) == {
        "model": {"d_ff": 256, "d_model": 2},
        "optimizer": {"learning_rate": 0.002},
        "tokenizer": {"joint": False},
        "data": {"directory": "12"},
    }


@pytest.mark.parametrize("kind", [dict, ConfigDict])
def test_the_original_is_left_alone(kind):
    values = kind({"model": {"d_ff": 1}})
    apply_overrides(values, [("model.d_ff", "2"), ("mesh.data", "2")])
    assert values == kind({"model": {"d_ff": 1}})


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("data=-1,fsdp=4,tensor=2", [("mesh.data", "-1"), ("mesh.fsdp", "4"), ("mesh.tensor", "2")]),
        ("fsdp=2, tensor", [("mesh.fsdp", "2"), ("mesh.tensor", "")]),
        ("8", [("mesh", "8")]),
    ],
)
def test_a_block_in_one_line(text, settings):
    assert spelled_out("mesh", text) == settings
    assert spelled_out("data.directory", text) == [("data.directory", text)]


@pytest.mark.parametrize("word", ["true", "True", "1", "yes"])
def test_words_for_true(word):
    assert apply_overrides({}, [("tokenizer.joint", word)]) == {"tokenizer": {"joint": True}}


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("model.num_head", "8", "model.num_head: unknown key; did you mean model.num_heads?"),
        ("tokeniser.kind", "bpe", "tokeniser.kind: unknown key; did you mean tokenizer.kind?"),
        ("model.d_ff.x", "8", "model.d_ff.x: unknown key; did you mean model.d_ff?"),
        ("mesh", "8", "mesh: is a block; set keys of it (mesh=data=VALUE,...): data, fsdp, context, tensor"),
        ("model.d_ff", "2.5", "model.d_ff: expected a whole number (int), found '2.5'"),
        ("model.d_ff", "", "model.d_ff: expected a whole number (int), found ''"),
        ("model.dropout", "low", "model.dropout: expected a number (float), found 'low'"),
        ("tokenizer.joint", "maybe", "tokenizer.joint: expected True or False (bool), found 'maybe'"),
    ],
)
def test_what_cannot_be_read_is_refused(key, text, message):
    with pytest.raises(ConfigError) as raised:
        apply_overrides({}, [(key, text)])
    assert str(raised.value) == message


def test_an_override_inside_what_the_recipe_made_a_value():
    with pytest.raises(ConfigError, match=r"^model: the recipe sets it to 3, but it is a block of settings$"):
        apply_overrides({"model": 3}, [("model.d_ff", "2")])
