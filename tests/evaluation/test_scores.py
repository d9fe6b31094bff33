import math
from pathlib import Path

import pytest

from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.config.evaluation import EvaluationConfig, is_installed
from transformer_jax.config.languages import base_language
from transformer_jax.evaluation.scores import score_translations, with_split_compounds
from transformer_jax.files.terminal import text_table
from transformer_jax.registry.plugins import register
from transformer_jax.registry.python_files import load_plugin

LINES = ["Das ist ein Haus.", "Ein Mädchen klettert in ein Spielhaus aus Holz.", "Zwei Männer gehen nach Hause."]


def test_signatures_say_what_was_measured():
    scores = score_translations([line.upper() for line in LINES], LINES)
    assert scores.values["bleu"] < 5 and scores.values["bleu_lowercase"] == pytest.approx(100)
    assert scores.signatures["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert scores.signatures["bleu_lowercase"].startswith("nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:")
    assert scores.signatures["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_moses_counts_words_in_lower_case_with_plain_punctuation():
    asked = EvaluationConfig(metrics="bleu,bleu_moses")
    scores = score_translations(["Er sagt laut: „Halt!“"], ['er sagt laut: "Halt!"'], "de", asked)
    assert scores.values["bleu_moses"] == pytest.approx(100) and scores.values["bleu"] < 60
    signature = scores.signatures["bleu_moses"]
    assert "case:lc|eff:no|tok:none|smooth:none" in signature and "normalization of punctuation" in signature
    long_codes = {"fra_Latn": "fr", "ces": "cs", "deu_Latn": "de", "zh_CN": "zh"}
    assert [base_language(code) for code in long_codes] == [*long_codes.values()]


def test_compounds_are_three_words_in_the_form_of_the_paper():
    line, tokens = "Ein T-Shirt, z. B. „a-b-c“.", "Ein T ##AT##-##AT## Shirt , z. B. „ a ##AT##-##AT## b-c “ ."
    assert with_split_compounds([line], "de") == [tokens]
    assert with_split_compounds([line], "xx") == [tokens.replace("z.", "z .")]
    right, wrong = "Er trägt heute ein rotes T-Shirt .", "Er trägt heute ein rotes T-Stück ."
    scores = score_translations([wrong], [right], "de")
    # 8 of 9 words instead of 6 of 7.
    counts = ((6 / 7, 4 / 6, 3 / 5, 2 / 4), (8 / 9, 6 / 8, 5 / 7, 4 / 6))
    for score, precisions in zip((scores.values["bleu"], scores.values["bleu_compounds"]), counts, strict=True):
        assert score == pytest.approx(100 * math.prod(precisions) ** 0.25)
    assert "tok:none|smooth:none" in scores.signatures["bleu_compounds"]
    asked = EvaluationConfig(metrics="bleu_compounds")
    assert "Moses (fr, " in score_translations([wrong], [right], "fr", asked).signatures["bleu_compounds"]
    assert "bleu_compounds" not in score_translations([wrong], [right], "fr").values


def test_words_are_those_of_the_language():
    """One of seven characters is wrong, of the words that spaces separate all one."""
    right, wrong = ["私は猫が好き。", "彼は走った。"], ["私は犬が好き。", "彼は走った。"]
    by_letter = score_translations(wrong, right, "ja", EvaluationConfig(bleu_tokenizer="char"))
    by_space = score_translations(wrong, right, "ja", EvaluationConfig(bleu_tokenizer="13a"))
    assert by_letter.details["precisions"][0] == pytest.approx(100 * 12 / 13)
    assert "tok:char" in by_letter.signatures["bleu"]
    assert by_space.details["precisions"][0] == 50
    assert (by_letter.values["ter"], by_space.values["ter"]) == pytest.approx((100 / 12, 50))
    assert score_translations(["我喜欢猫。"], ["我喜欢JAX。"], "zh").details["reference_tokens"] == 5
    assert "ter" not in score_translations(wrong, right, "th").values


def test_only_what_is_asked_for_is_measured(monkeypatch):
    scores = score_translations(LINES, LINES, "de", EvaluationConfig(metrics="chrf"))
    assert list(scores.values) == list(scores.signatures) == ["chrf"] and not scores.details
    assert "BLEU" not in text_table(scores.rows()) and "bleu" not in scores.to_json()
    monkeypatch.setenv("SACREBLEU", "/nowhere")
    is_installed.cache_clear()
    with pytest.raises(
        ConfigError,
        match=r"evaluation.metrics: flores200 needs /nowhere/models/flores200\S*; `sacrebleu TEXT -i TEXT --tok",
    ):
        score_translations(LINES, LINES, "de", EvaluationConfig(metrics="spbleu"))
    is_installed.cache_clear()


def test_several_references_are_streams():
    other = ["Das ist ein Häuschen.", "Ein Kind klettert.", "Zwei Männer gehen nach Hause."]
    mixed = [LINES[0], other[1], LINES[2]]
    scores = score_translations(mixed, [LINES, other])
    assert scores.values["bleu"] == pytest.approx(100)
    assert scores.num_references == 2 and scores.signatures["bleu"].startswith("nrefs:2|")
    assert score_translations(mixed, [LINES]).values["bleu"] < 100
    assert score_translations(mixed, [LINES]) == score_translations(mixed, LINES)


def test_wrong_input_is_named():
    for hypotheses, references, problem in (
        (LINES[:2], LINES, "2 hypotheses but 3 lines in reference 1 of 1"),
        (LINES, [LINES, LINES[:2]], "3 hypotheses but 2 lines in reference 2 of 2"),
        ([], [[], []], "0 hypotheses"),
    ):
        with pytest.raises(DataError, match=problem):
            score_translations(hypotheses, references)


def test_a_metric_of_a_plugin_is_scored_and_selects():
    with pytest.raises(ConfigError, match="a plugin may add it"):
        from_dict({"evaluation": {"selection": "length_ratio"}})
    load_plugin(str(Path(__file__).resolve().parents[2] / "examples" / "length_ratio.py"))

    @register("metric", "copied")
    class Copied:
        direction = "minimize"

        def __new__(cls, hypotheses, references, sources):
            return sum(text in sources for text in hypotheses)

    config = from_dict({"evaluation": {"selection": "length_ratio", "metrics": "copied,bleu"}})
    assert config.selection.key == "validation/length_ratio" and config.selection.direction == "maximize"
    assert {metric.name for metric in config.metrics} == {"bleu", "chrf", "length_ratio", "loss", "perplexity"}
    scores = score_translations(["a b", "c"], [["a", "d e"], ["f", "g"]], "en", config.evaluation, ["x", "c"])
    assert list(scores.values) == ["bleu", "copied"] and scores.values["copied"] == 1
    with_ratio = score_translations(["a b", "c"], ["a", "d"], "en", config.evaluation, ["x", "c"])
    assert ("copied", "1.00", "of a plugin") in with_ratio.rows()
    assert from_dict({"evaluation": {"selection": "copied"}}).selection.is_better(1, 2)
