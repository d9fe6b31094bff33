"""What a model takes from a checkpoint: by name, renamed, left out, of the same shape, or told why not."""

import pytest

from transformer_jax.config import ConfigError, InitConfig
from transformer_jax.training.parameter_matching import Match, describe_match, match_parameters, renamed

SAVED = {
    "source_embedding/table": (9, 4),
    "encoder_layers_0/wide_kernel": (4, 8),
    "encoder_layers_1/wide_kernel": (4, 8),
}


def init(**settings: str) -> InitConfig:
    return InitConfig(run="runs/a", **settings)


def test_names_that_are_the_same_meet():
    wanted = {"source_embedding/table": (9, 4), "encoder_layers_0/wide_kernel": (4, 8), "projection/table": (9, 4)}
    match = match_parameters(SAVED, wanted, init())
    assert match.taken == {name: name for name in ("source_embedding/table", "encoder_layers_0/wide_kernel")}
    assert match[1:] == (["projection/table"], [], ["encoder_layers_1/wide_kernel"])


def test_rules_follow_each_other():
    settings = init(rename=r"^encoder_layers_(\d)=>stack/\1;stack/0 => stack/first")
    origin = renamed(list(SAVED), settings)
    assert origin == {
        "source_embedding/table": "source_embedding/table",
        "stack/first/wide_kernel": "encoder_layers_0/wide_kernel",
        "stack/1/wide_kernel": "encoder_layers_1/wide_kernel",
    }
    match = match_parameters(SAVED, {"stack/1/wide_kernel": (4, 8)}, settings)
    assert match.taken == {"stack/1/wide_kernel": "encoder_layers_1/wide_kernel"}
    assert match.unused == ["source_embedding/table", "encoder_layers_0/wide_kernel"]


def test_what_is_left_out_may_have_another_shape():
    wanted = {**SAVED, "source_embedding/table": (5, 4)}
    match = match_parameters(SAVED, wanted, init(leave_out="embedding"))
    assert match == Match(
        {name: name for name in SAVED if name.startswith("encoder")}, [], ["source_embedding/table"], []
    )
    assert describe_match(match) == "2 arrays taken; 1 left out, randomly initialized: source_embedding/table"


@pytest.mark.parametrize(
    ("wanted", "settings", "message"),
    [
        (
            {**SAVED, "source_embedding/table": (5, 4)},
            {},
            r"1 of 3 parameters .* another shape; .*--config.init.leave_out='\^source_embedding/table\$':\n"
            r"  source_embedding/table: \(9, 4\) in the checkpoint, \(5, 4\) here",
        ),
        (
            SAVED,
            {"leave_out": "decoder"},
            "init.leave_out: 'decoder' is found in no path of this model; paths are source_",
        ),
        (SAVED, {"rename": "decoder=>encoder"}, "init.rename: 'decoder' changes no path of the checkpoint; paths are"),
        (
            SAVED,
            {"rename": r"layers_\d=>layers"},
            "encoder_layers_0/wide_kernel and encoder_layers_1/wide_kernel of the checkpoint would both be encoder_layers/",
        ),
        (
            {"bridge/kernel": (4, 4)},
            {},
            "init.run: runs/a has no parameter of this model; it has source_embedding/table",
        ),
        (SAVED, {"leave_out": "."}, "has no parameter of this model"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_names(wanted, settings, message):
    with pytest.raises(ConfigError, match=message):
        match_parameters(SAVED, wanted, init(**settings))
