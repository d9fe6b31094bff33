"""What ``train --budget`` chooses, what it leaves alone, and when it chooses nothing."""

import json

import pytest

from transformer_jax.commands import sizing, train
from transformer_jax.commands.flag_parsing import parse_flags
from transformer_jax.commands.sizing import sized_config
from transformer_jax.config import ConfigError, to_json


@pytest.fixture
def sized(tmp_path, monkeypatch):
    """The settings and the remark for these flags, for a corpus of 3,000 pairs on a machine of 100 GFLOP/s."""
    for language in ("en", "de"):
        (tmp_path / f"t.{language}").write_text("".join(f"a b c {number}\n" for number in range(3000)))
    monkeypatch.setattr(sizing, "_flops", lambda: 1e11)

    def choose(*flags: str):
        text = ["--config=text", f"--config.data.train={tmp_path}/t.en", f"--config.data.train={tmp_path}/t.de"]
        return sized_config(parse_flags(train.define_flags, [*text, f"--workdir={tmp_path}/run", *flags]))

    return choose


def test_the_recipe_has_a_budget_and_a_flag_another(sized):
    (hour, said), (seconds, _) = sized("--config.data.held_out=100"), sized("--budget=5s", "--config.data.held_out=100")
    assert hour.training.num_updates > seconds.training.num_updates >= 20
    assert said.startswith("3,000 pairs of about 4 words: 0.9 million parameters, ")
    assert said.endswith("; budget 1h")


def test_what_is_set_by_hand_stays(sized):
    config, _ = sized(
        "--config.model.d_model=64", "--config.training.num_updates=77", "--config.optimizer.warmup_updates=7"
    )
    assert (config.model.d_model, config.training.num_updates, config.optimizer.warmup_updates) == (64, 77, 7)


def test_a_run_that_has_begun_keeps_its_size(sized, tmp_path):
    first, _ = sized("--budget=2m")
    (tmp_path / "run" / "checkpoints" / "10").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text(json.dumps(to_json(first)))
    again, said = sized("--budget=9h")
    assert (again, said) == (first, "the run keeps its size")


def test_only_translated_text_is_sized(sized):
    with pytest.raises(ConfigError, match="--budget: sizes a translation of text files"):
        sized("--config=quickstart", "--config.data.train=", "--budget=1m")
    values = parse_flags(train.define_flags, ["--config=quickstart", "--workdir=none"])
    assert sized_config(values)[1] == ""
