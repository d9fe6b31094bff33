"""What ``train --budget`` chooses, what it leaves alone, and when it chooses nothing."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from transformer_jax.commands.flags import joined_files
from transformer_jax.config import ConfigError, DataError, flatten, to_json
from transformer_jax.data.documents import open_documents
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizer
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.tools.sizing import sizes
from transformer_jax.tools.sizing.sizes import sized as sized_config
from transformer_jax.tools.sizing.translation_sizes import SIZES


@pytest.fixture
def sized(tmp_path, monkeypatch):
    """The settings and the remark for these flags, for a corpus of 3,000 pairs on a machine of 200
    GFLOP/s."""
    for language in ("en", "de"):
        (tmp_path / f"t.{language}").write_text("".join(f"aa bb cc {number}\n" for number in range(3000)))
    monkeypatch.setattr(sizes, "flops_here", lambda: 2e11)

    def choose(*settings: str, budget: str | None = None, source: str = "text"):
        stated = ["data.source=text", f"data.train={tmp_path}/t.en", f"data.train={tmp_path}/t.de", *settings]
        overrides = joined_files([tuple(each.split("=")) for each in stated])
        return sized_config(source, overrides, f"{tmp_path}/run", budget)

    return choose


def test_the_recipe_has_a_budget_and_a_call_another(sized):
    hour, minutes = sized("data.held_out=100"), sized("data.held_out=100", budget="1m")
    assert hour.config.training.num_updates > minutes.config.training.num_updates >= 20
    assert hour.remark.startswith("budget 1h: 2,900 pairs of about 4 words: 0.7 million parameters, ")
    assert "\none joint vocabulary of 278 pieces (Latin on both sides, " in hour.remark
    record = {"budget": "1m", "flops": 2e11, "estimated_seconds": pytest.approx(60, rel=0.02)}
    assert minutes.record["sizing"] == record | {"max_updates": minutes.record["sizing"]["max_updates"]}
    assert minutes.record["sizing"]["max_updates"] >= minutes.config.training.num_updates
    assert sized("training.num_updates=77").record["sizing"]["max_updates"] == 0


def test_checkpoints_of_targets_too_short_for_bleu_are_selected_by_chrf(sized, tmp_path):
    assert sized("data.held_out=100").config.evaluation.selection == ""
    (tmp_path / "t.de").write_text("".join(f"{number}\n" for number in range(3000)))
    short = sized("data.held_out=100")
    assert short.config.evaluation.selection == "chrf"
    assert short.remark.endswith("too few for BLEU: checkpoints are selected by chrF")
    assert sized("data.held_out=100", "evaluation.selection=ter").config.evaluation.selection == "ter"


def test_what_is_stated_stays_and_counts(sized, tmp_path):
    text = [("data.train", f"{tmp_path}/t.en"), ("training.num_updates", "18")]
    config = sized_config("language_model:text", text, "none").config
    assert (config.training.num_updates, config.optimizer.warmup_updates) == (18, 1)
    config, said, _ = sized("model.d_model=64", "training.num_updates=77", "optimizer.warmup_updates=7")
    assert (config.model.d_model, config.training.num_updates, config.optimizer.warmup_updates) == (64, 77, 7)
    assert "0.2 million parameters, 77 updates" in said
    config = sized("batching.kind=buckets", "batching.tokens_per_update=2048", budget="2m").config
    assert (config.batching.kind, config.batching.count) == ("buckets", "positions")
    assert config.optimizer.learning_rate == SIZES[0].learning_rate


@pytest.mark.parametrize(
    ("source", "setting"),
    [
        *(("language_model:text", setting) for setting in (
            "decoding.max_new_tokens=60", "data.evaluation_stride=64", "batching.context_length=1024",
            "model.d_model=100", "model.num_heads=3", "batching.row_multiple=4",
        )),
        *(("text", setting) for setting in (
            "model.d_model=132", "model.num_heads=3", "tokenizer.joint=false", "optimizer.schedule=noam",
        )),
    ],
)  # fmt: skip
def test_a_setting_that_is_valid_in_the_plan_is_taken(sized, tmp_path, source, setting):
    text = [f"data.train={tmp_path}/t.en"] if source != "text" else []
    (key, value), config = setting.split("="), sized(*text, setting, source=source, budget="2m").config
    assert str(flatten(config)[key]).lower() == value


def test_texts_that_support_few_pieces_or_are_empty(sized, tmp_path):
    (tmp_path / "same").write_text("the same line again\n" * 20_000)
    same = sized_config("language_model:text", [("data.train", f"{tmp_path}/same")], "none", "1m")
    assert (
        same.config.tokenizer.vocabulary_size < 500
        and f"vocabulary of {same.config.tokenizer.vocabulary_size} pieces" in same.remark
    )
    for language in ("en", "de"):
        (tmp_path / f"t.{language}").write_text("")
    with pytest.raises(DataError, match="data: the split 'train' has no pairs; its files are empty"):
        sized(f"data.validation={tmp_path}/same,{tmp_path}/same")
    text = [("data.train", f"{tmp_path}/t.en"), ("data.validation", f"{tmp_path}/same")]
    with pytest.raises(DataError, match="data: the split 'train' has no text"):
        sized_config("language_model:text", text, "none", "1m")


def test_a_budget_in_seconds_is_a_budget_but_not_beside_another(sized):
    seconds, minutes = sized("training.budget_seconds=120").config, sized(budget="2m").config
    assert seconds == minutes
    stated = [("training.budget_seconds", "60"), ("data.train", "a.en,a.de")]
    assert sizes.settings_and_budget("text", stated, None)[1] == "60.0s"
    for refused in (
        lambda: sized("training.budget_seconds=60", budget="2m"),
        lambda: sizes.settings_and_budget("text", stated, "2m"),
        lambda: sizes.require_stated_tokens("text", stated, "2m", "--tokenize_shards"),
    ):
        with pytest.raises(ConfigError, match=r"--budget: training.budget_seconds=60.0 is stated already; leave one"):
            refused()
    with pytest.raises(ConfigError, match="--budget: '' is not a time"):
        sized(budget="")


def test_a_run_that_has_begun_keeps_its_size_and_vocabulary(sized, tmp_path):
    words = ["\u3042\u4e00\u4e01", "\u3044\u4e03\u4e08", "\u3046\u4e09\u4e0a"]
    lines = ["".join(words[number // 3**place % 3] for place in range(8)) for number in range(3000)]
    (tmp_path / "t.de").write_text("\n".join(lines) + "\n")
    first = sized(budget="2m")
    assert (first.config.tokenizer.joint, first.config.model.tying) == (False, "output")
    assert "two vocabularies of 278 pieces (Latin and Han/Hiragana, 0% of the letters" in first.remark
    (tmp_path / "run" / "checkpoints" / "10").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text(json.dumps(to_json(first.config)))
    again = sized(budget="9h")
    longer = replace(first.config, training=replace(first.config.training, budget_seconds=9 * 3600.0))
    assert (again.config, again.remark) == (longer, "the run keeps its size and its number of updates")
    assert sized("decoding.beam_width=3").config.decoding.beam_width == 3
    assert sized(budget="1m").config.training.budget_seconds == 60
    RunDirectory(tmp_path / "run").write_outcome(reason="finished")
    with pytest.raises(ConfigError, match=r"--budget: .*run has finished, with a budget of 120 s; give a longer one"):
        sized(budget="1m")
    assert sized(budget="2m").config.training.budget_seconds == 120


def test_only_transformers_for_text_without_a_length_are_sized(sized):
    with pytest.raises(ConfigError, match="--budget: sizes a run on text files .*--config=language_model:text"):
        sized_config("quickstart", [], "none", "1m")
    with pytest.raises(ConfigError, match="--budget: sizes model.kind=transformer; set the sizes of model.kind=rnn"):
        sized("model.kind=rnn")
    with pytest.raises(ConfigError, match=r"--budget: training\.num_updates=8000 is stated already"):
        sized(source="multi30k:tiny_hour", budget="20m")
    assert sized_config("quickstart", [], "none").remark == ""


def test_text_of_any_task_is_sized_and_a_length_of_the_recipe_stays(sized, tmp_path):
    text = [("data.train", f"{tmp_path}/t.en"), ("data.source", "text")]
    for task in ("language_model", "word_vectors"):
        config, said, record = sized_config(task, text, "none", "1m")
        assert (config.task, config.training.budget_seconds) == (task, 60)
        assert config.training.num_updates >= 20 and said.startswith("budget 1m: ")
        assert record["sizing"]["estimated_seconds"] <= 61
    assert sized_config("language_model", text, "none").remark.startswith("budget 1h: ")
    small = sized_config("language_model", [*text, ("batching.tokens_per_update", "1024")], "none").config.batching
    assert (small.tokens_per_update, small.context_length) == (1024, 128)
    with pytest.raises(ConfigError, match=r"num_updates=1980 is stated already; .*--config=word_vectors:text"):
        sized_config("word_vectors:skip_gram", text, "none", "1m")


def test_epochs_of_a_language_model_are_counted_with_its_vocabulary(sized, tmp_path):
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrst"))
    # Words that no vocabulary knows: an estimate by their number would be several times too low.
    lines = [" ".join("".join(rng.choice(letters, 9)) for _ in range(5)) for _ in range(3000)]
    (tmp_path / "words.txt").write_text("\n".join(lines) + "\n")
    text = [("data.train", f"{tmp_path}/words.txt"), ("data.source", "text")]
    config, said, _ = sized_config("language_model", text, "none", "1m")
    documents = [each.text for each in open_documents(config.data, 0).documents("train")]
    tokenizer = train_tokenizer(config.tokenizer, documents)
    tokens = sum(map(len, tokenizer.encode_batch(documents))) + len(documents)
    assert tokens > 2 * 1.4 * sum(len(each.split()) for each in documents)
    epochs = float(re.search(r"([\d.]+) epochs", said)[1])
    assert epochs == pytest.approx(config.training.num_updates * config.batching.tokens_per_update / tokens, rel=0.02)


def test_a_run_from_restored_parameters_has_their_sizes_and_a_lower_rate(sized, tmp_path):
    other = sized("model.d_model=64", "tokenizer.vocabulary_size=300", "data.held_out=100", budget="2m").config
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps(to_json(other)))
    init = f"init.run={tmp_path}/other"
    fresh, tuned = sized("data.held_out=100"), sized("data.held_out=100", init)
    assert (tuned.config.model.d_model, tuned.config.tokenizer.vocabulary_size) == (64, 300)
    assert fresh.config.model.d_model != 64, "for an hour"
    assert tuned.config.optimizer.learning_rate == pytest.approx(0.2 * fresh.config.optimizer.learning_rate)
    assert f"\noptimizer.learning_rate={tuned.config.optimizer.learning_rate:g}, 0.2 of the peak" in tuned.remark
    stated = sized("data.held_out=100", init, "optimizer.learning_rate=0.01", "model.d_model=32")
    assert (stated.config.optimizer.learning_rate, stated.config.model.d_model) == (0.01, 32)
    assert "optimizer.learning_rate" not in stated.remark
    with pytest.raises(ConfigError, match=r"init.run: .*none does not exist"):
        sized("data.held_out=100", f"init.run={tmp_path}/none")
