"""Size and length of a run on plain text follow from the text and a budget; the recipe is chosen by the text that is named."""

import pytest

from transformer_jax.config import ConfigError, TextDataConfig, resolve
from transformer_jax.config.text_sizing import (
    MOST_EPOCHS,
    SIZES,
    TextStatistics,
    plan_language_model,
    plan_word_vectors,
)
from transformer_jax.data.documents import measure_text

FLOPS = 2e11
BUDGETS = (30, 60, 180, 600, 3600, 36_000, 360_000)


def text_of(num_bytes, **changed):
    words, lines = num_bytes / 5.5, num_bytes / 100
    return TextStatistics(num_bytes, num_bytes, words, lines, 0, 1, 80)._replace(**changed)


JAPANESE = text_of(3e6, characters=1e6, words=5e4, lines=5e4, alphabet=1500, has_words=False)


@pytest.mark.parametrize("text", [text_of(1e3), text_of(1e5), text_of(2e6), text_of(1e8), text_of(1e10), JAPANESE])
@pytest.mark.parametrize(
    ("plan_of", "recipe"), [(plan_language_model, "language_model"), (plan_word_vectors, "word_vectors")]
)
def test_every_plan_is_a_run_in_its_time_and_more_time_is_never_less(text, plan_of, recipe):
    before = {"training.num_updates": 0, "model.d_model": 0}
    for seconds in BUDGETS:
        found = plan_of(text, seconds, FLOPS)
        overrides = [("data.train", "a.txt"), *((key, str(value)) for key, value in found.settings.items())]
        config = resolve(recipe, overrides)
        assert config.training.num_updates >= 20 and found.seconds <= 1.01 * seconds
        assert config.training.num_updates <= 5.2 * config.training.evaluate_every
        assert config.model.d_model >= before["model.d_model"]
        if config.model.d_model == before["model.d_model"]:
            assert config.training.num_updates >= before["training.num_updates"]
        before = found.settings
    with pytest.raises(ConfigError, match=r"--budget: 3 s do not pay start-up, .* 20 updates here; give 1m or more"):
        plan_of(text, 3, FLOPS)


def test_a_small_text_has_a_small_model_dropout_and_an_end():
    small, large = (plan_language_model(text_of(size), 36_000, FLOPS).settings for size in (2e6, 1e10))
    assert small["model.d_model"] == SIZES[0].d_model < large["model.d_model"]
    tokens = small["training.num_updates"] * small["batching.tokens_per_update"]
    assert tokens <= 1.01 * MOST_EPOCHS * text_of(2e6).tokens
    assert small["model.dropout"] > 0.2 > large["model.dropout"] == 0
    assert plan_language_model(text_of(2e4), 60, FLOPS).settings["tokenizer.kind"] == "byte"
    settings = plan_language_model(JAPANESE, 60, FLOPS).settings
    assert settings["tokenizer.kind"] == "bpe" and settings["tokenizer.vocabulary_size"] == 3 * 1500
    assert plan_word_vectors(JAPANESE, 60, FLOPS).settings["tokenizer.kind"] == "bpe"


def test_what_is_stated_stays_and_counts():
    stated = {
        "model.d_model": 64,
        "training.num_updates": 77,
        "batching.context_length": 32,
        "data.documents": "paragraphs",
    }
    found = plan_language_model(text_of(2e6), 60, FLOPS, stated)
    assert {key: found.settings[key] for key in stated} == stated
    assert found.settings["model.max_positions"] == 32
    resolve("language_model:text", [("data.train", "a"), *((key, str(value)) for key, value in found.settings.items())])
    assert (
        plan_language_model(text_of(2e6), 60, FLOPS, {"batching.context_length": 512}).settings[
            "batching.tokens_per_update"
        ]
        == 512 * 8
    )
    assert (
        "data.documents=paragraphs" in found.sentence
        and "context of 32 tokens" in found.sentence
        and "77 updates" in found.sentence
    )


def test_counts_of_a_text_and_where_its_documents_end(tmp_path):
    def measured(text, **settings):
        (tmp_path / "a.txt").write_text(text, encoding="utf-8")
        config = TextDataConfig(source="text", train=str(tmp_path / "a.txt"), held_out=0.2, **settings)
        return measure_text(config, 0)

    lines = measured("ein kurzer Satz\n" * 1000)
    assert (lines.num_bytes, lines.words, lines.documents) == pytest.approx((12_800, 2400, 800), rel=0.01)
    assert lines.documents_are == "lines" and "800 documents (one a line: data.documents=lines)" in lines.text()
    book = measured("eine Zeile\neine zweite\n\n" * 1000, documents="lines")
    assert (book.documents_are, book.paragraphs) == ("paragraphs", pytest.approx(800, rel=0.01))
    assert "documents (between blank lines: data.documents=paragraphs)" in book.text()
    japanese = measured("雨が降る。\n" * 1000)
    assert not japanese.has_words and japanese.alphabet == 5
    assert (japanese.num_bytes, japanese.characters) == pytest.approx((12_800, 4000), rel=0.01)


def test_a_recipe_without_a_variant_is_that_of_the_text_that_is_named():
    named = resolve("language_model", [("data.train", "a.txt")])
    assert (named.data.source, named.data.train) == ("text", "a.txt")
    assert resolve("word_vectors", [("data.directory", "texts")]).data.source == "text"
    assert resolve("language_model", [("seed", "3")]).data.source == "grammar"
    with pytest.warns(FutureWarning, match="data.file is now data.train"):
        assert resolve("language_model:enwiki", [("data.file", "a.txt")]).data.train == "a.txt"
