"""Settings that are schedules of the update: read, checked, saved, compared and swept as text."""

import copy
import pickle

import pytest

from transformer_jax.__main__ import main
from transformer_jax.commands.config_command import explained
from transformer_jax.config import (
    ConfigError,
    apply_overrides,
    difference,
    from_dict,
    from_json,
    hyperparameters_of,
    may_change,
    scheduled_hyperparameters_of,
    to_json,
)
from transformer_jax.config.conversion import flatten, spelled_out
from transformer_jax.config.update_schedules import Cosine, Ramp
from transformer_jax.tools.study.sweeps import Choice, Sweep, check

TERM = "training.loss_terms=z_loss & "
REFUSED = [
    ("model.dropout=lnear(0,0.1)", "model.dropout: 'lnear(0,0.1)' is no schedule; did you mean linear(...)?"),
    ("model.dropout=warm(0,0.1)", "model.dropout: 'warm(0,0.1)' is no schedule; use linear(START,END) or"),
    *(
        (f"model.dropout={text}", f"model.dropout: {text!r} is not {text.partition('(')[0]}(START,END")
        for text in (
            *("linear(0)", "linear(0,0.1,5)", "linear(0,0.1,5,2)", "linear(0,0.1,1.5,2)", "linear(0,0.1", "linear(0,)"),
            *(
                "cosine(0,nan)",
                "cosine(0_0,0.1)",
                "linear(0,0.1,0,5)",
                "step(0,0.1)",
                "step(0,0.1,1)",
                "step(0,0.1,5,9)",
            ),
        )
    ),
    ("model.dropout=linear(0,1)", "model.dropout: 1.0 of linear(0,1) must be below 1"),
    (
        "model.attention=soft_cap & parts.soft_cap.cap=linear(0,50)",
        "parts.soft_cap.cap: 0.0 of linear(0,50) must be above",
    ),
    (
        "model.d_ff=linear(1,2)",
        "model.d_ff: is fixed during a run, and linear(1,2) is a schedule of the update; of model, dro",
    ),
    (
        "optimizer.learning_rate=linear(0,1)",
        "optimizer.learning_rate: is fixed during a run, and linear(0,1) is a sched",
    ),
    (
        "decoding.length_penalty=linear(0,1)",
        "decoding.length_penalty: is fixed during a run, and linear(0,1) is a sched",
    ),
    (
        "optimizer.schedule=wsd & parts.wsd.decay_share=linear(0.1,0.2)",
        "parts.wsd: a schedule of the rate takes numbers",
    ),
    ("optimizer.weight_decay=linear(0.1,0)", "optimizer.weight_decay: adam has none; use optimizer.name=adamw"),
]


def settings_of(text: str):
    return from_dict(apply_overrides({}, [each.partition("=")[::2] for each in text.split(" & ")]))


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_wrong_schedule_is_refused_with_its_remedy(text, message):
    with pytest.raises(ConfigError) as raised:
        settings_of(text)
    assert str(raised.value).startswith(message)


def test_a_schedule_is_saved_as_text_and_read_back():
    text = (
        TERM + "parts.z_loss.weight= linear( 0, 1e-4 ) & model.dropout=cosine(.3,0,2,9) & optimizer.b1=step(0.9,0.5,7)"
    )
    config = settings_of(text)
    flat = flatten(config)
    assert [flat[key] for key in config.schedules] == ["step(0.9,0.5,7)", "cosine(0.3,0,2,9)", "linear(0,0.0001)"]
    for other in (from_json(to_json(config)), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other == config and not difference(other, config)
    assert difference(config, settings_of(TERM + text.partition(" & ")[2].replace("9)", "8)", 1)))
    # Only the schedule differs, not the last value.
    constant = settings_of(text.replace("cosine(.3,0,2,9)", "0"))
    assert difference(config, constant) == [("model.dropout", "cosine(0.3,0,2,9)", 0.0)] and config != constant


def test_models_are_evaluated_with_last_values_and_steps_get_ramps():
    config = settings_of(
        TERM + "parts.z_loss.weight=linear(0,1) & model.dropout=cosine(0.3,0,2,9) & optimizer.b1=step(0.9,0,7)"
    )
    last, ramps = hyperparameters_of(config), scheduled_hyperparameters_of(config)
    assert (last.b1, last.rates.dropout, last.parts["z_loss"]["weight"]) == (0.0, 0.0, 1.0)
    assert config.parts["z_loss"].weight * 2 == 2.0 and config.model.dropout, "dropout is not removed from the program"
    expected = Ramp(0.9, 0.0, 6.0, 7.0), Cosine(0.3, 0.0, 2.0, 9.0), Ramp(0.0, 1.0)
    found = ramps.b1, ramps.rates.dropout, ramps.parts["z_loss"]["weight"]
    assert [(type(each), each) for each in found] == [(type(each), each) for each in expected]
    plain = settings_of("model.dropout=0.1")
    assert scheduled_hyperparameters_of(plain) == hyperparameters_of(plain)


def test_a_run_whose_schedule_ends_with_it_keeps_its_length():
    for text, may in (("linear(0,0.1)", False), ("linear(0,0.1,1,9)", True), ("step(0,0.1,9)", True), ("0.1", True)):
        config = settings_of(f"model.dropout={text}")
        assert may_change("training.num_updates", config, config) is may


def test_schedules_are_explained_printed_swept_and_given_in_blocks(capsys):
    assert "schedules: linear(START,END) or" in explained("parts.z_loss.weight").text()
    assert "schedule" not in explained("model.d_ff").text() + explained("optimizer.learning_rate").text()
    assert main(["config", "--config=quickstart", "--config.model=dropout=linear(0,0.1),d_ff=8"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "model.dropout = linear(0,0.1)" in printed and "model.d_ff = 8 " in printed
    assert spelled_out("model", "dropout=step(0,0.1,9), d_ff=8") == [
        ("model.dropout", "step(0,0.1,9)"),
        ("model.d_ff", "8"),
    ]
    weights = Choice(1e-4, "linear(0,1e-4)")
    sweep = Sweep("quickstart", {"training.loss_terms": "z_loss"}, space={"parts.z_loss.weight": weights})
    check(sweep)
    found = [str(sweep.settings(point).parts["z_loss"].weight) for point in sweep.points()]
    assert found == ["0.0001", "linear(0,0.0001)"]
