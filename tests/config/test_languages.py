"""Languages of files and text, and what follows from them for the scores of translations."""

import pytest

from transformer_jax.config import ConfigError, ExperimentConfig, evaluation, from_dict, may_change
from transformer_jax.config.evaluation import bleu_tokenizer_of
from transformer_jax.config.languages import UNDETERMINED, language_of_file
from transformer_jax.data.scripts import lack_spaces, language_of_text


def test_the_suffix_of_a_file():
    names = {"train.fr": "fr", "corpus/train.lc.de.gz": "de", "a.zh_CN": "zh_CN", "a.pt-br": "pt-br", "t.ja.xz": "ja"}
    names |= {"flores.eng_Latn": "eng_Latn", "a.zh_Hans": "zh_Hans"}
    names |= dict.fromkeys(("all.tsv", "train.src", "train.txt", "a.tok.gz", "de", "a.xx", "a.de1"), "")
    assert {name: language_of_file(name) for name in names} == names


def test_the_script_of_a_text():
    texts = {"私は猫が好きです。JAX": "ja", "我喜欢猫。": "zh", "나는 고양이를 좋아한다.": "ko", "ฉันชอบแมว": "th"}
    texts |= {"使用 TensorFlow 和 PyTorch 训练模型": "zh", "The word 猫 is Chinese.": UNDETERMINED}
    texts |= {"אני אוהב חתולים": "he", "Γάτες": "el"}
    texts |= dict.fromkeys(("I like cats.", "Я люблю кошек.", "أحب القطط", "12. 3!", ""), UNDETERMINED)
    assert {text: language_of_text([text])[0] for text in texts} == texts


def test_spaces_that_were_put_in_separate_words():
    texts = {"多くの動物が人間によって滅ぼされた。": True, "เขาไปโรงเรียนทุกวัน": True}
    texts |= dict.fromkeys(("多く の 動物 が 人間 に よっ て 滅ぼ さ れ た 。", "Donaudampfschifffahrt", ""), False)
    assert {text: lack_spaces([text, text]) for text in texts} == texts


def settings(train: str, **data: str) -> ExperimentConfig:
    return from_dict({"data": {"source": "text", "train": train, **data}})


def test_languages_are_those_of_the_suffixes_unless_they_are_stated():
    def sides(config):
        return config.data.source_language, config.data.target_language

    assert sides(settings("corpus/train.{en,fr}")) == ("en", "fr")
    assert sides(settings("a.en.gz,b.ja.gz", target_language="zh")) == ("en", "zh")
    assert sides(settings("all.tsv", target_language="fr")) == ("", "fr")
    assert sides(settings("old.en,new.en")) == ("en", "en")
    assert sides(ExperimentConfig()) == ("en", "de")
    with pytest.raises(ConfigError, match="the same as"):
        from_dict({"data": {"source": "text", "directory": "here", "source_language": "de"}})


def test_a_run_keeps_its_languages_unless_they_were_not_known():
    english = settings("all.tsv", source_language="en", target_language="de")
    unknown = settings("all.tsv", source_language=UNDETERMINED, target_language="de")
    french = settings("all.tsv", source_language="fr", target_language="de")
    assert not may_change("data.source_language", english, french)
    assert may_change("data.source_language", unknown, french)


def test_tokenizer_and_selection_follow_from_the_language(monkeypatch):
    monkeypatch.setattr(evaluation, "is_installed", lambda name: name in ("zh", "char"))
    tokenizers = {"fr": "13a", "": "13a", "zh_CN": "zh", "ja": "char", "ko": "char", "th": "char", "jpn_Jpan": "char"}
    assert {language: bleu_tokenizer_of(language) for language in tokenizers} == tokenizers
    assert settings("a.{en,fr}").selection.name == settings("a.{en,zh}").selection.name == "bleu"
    assert settings("a.{en,ja}").selection.name == "chrf"
    monkeypatch.setattr(evaluation, "is_installed", lambda name: True)
    assert [bleu_tokenizer_of(each) for each in ("ja", "ko", "th")] == ["ja-mecab", "ko-mecab", "flores200"]
    assert settings("a.{en,ja}").selection.name == "bleu"


def test_validations_compute_the_named_scores_and_the_selection():
    config = settings("a.{en,de}")
    assert config.validated_scores == ("bleu", "chrf")
    assert {"ter", "bleu_compounds"}.isdisjoint(metric.name for metric in config.metrics)
    by_chrf = from_dict({"evaluation": {"selection": "chrf"}, "training": {"validation_metrics": "ter"}})
    assert set(by_chrf.validated_scores) == {"ter", "chrf"}
