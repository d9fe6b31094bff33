"""Mixtures of corpora: one store, shares of an epoch, tags, scores by corpus, early errors."""

import re
from contextlib import nullcontext
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ConfigError, DataConfig, DataError, TokenizerConfig, from_dict
from transformer_jax.config.language_model import TextBatchingConfig, TextDataConfig
from transformer_jax.data.corpora import open_corpus, require_target_language
from transformer_jax.data.documents import open_documents
from transformer_jax.data.mixed_corpora import items_of_epoch, ranges_of, times_an_epoch
from transformer_jax.data.stores import open_token_store
from transformer_jax.data.text_rows import rows_of_mixture
from transformer_jax.data.tokenization import DocumentTokenization, PairTokenization
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizers
from transformer_jax.tasks.language_model.language_model_task import LanguageModelTask
from transformer_jax.tasks.new_tokenizers import cached_tokenizers
from transformer_jax.tasks.translation import translation_task as translation
from transformer_jax.tasks.translation.evaluator import Evaluator, TranslationEvaluation
from transformer_jax.tasks.translation.translation_task import TranslationTask
from transformer_jax.tasks.translation.translator import Translation
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh

TAGS = "de=<2de> bt=<BT>"
WEIGHED = {"fr": 40, "de": 10, "bt": 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pairs of "fr", "de" and "bt", which has an invisible source and a copied one."""
    folder = tmp_path_factory.mktemp("mixture")
    lines = {"fr": [("a b", "c d")] * 40, "de": [("a b", "f"), ("f", "a b c")] * 5}
    lines["bt"] = [("a", "f"), ("\u200b", "b"), ("c", "c"), ("b", "d")]
    for name, pairs in lines.items():
        for side, texts in zip(("en", name if name != "bt" else "de"), zip(*pairs, strict=True), strict=True):
            (folder / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return folder


def data_of(folder, **settings):
    train = f"fr={folder}/fr.{{en,fr}} de={folder}/de.{{en,de}}  bt={folder}/bt.{{en,de}}"
    validation = f"bt={folder}/bt.{{en,de}} fr={folder}/fr.{{en,fr}}"
    values = {"source": "mixture", "train": train, "validation": validation, "tags": TAGS}
    return DataConfig(**values | {"cache_directory": f"{folder}/cache"} | settings)


def tokenizers_of(data, kind="bpe", size=270, **settings):
    config = TokenizerConfig(kind, size, character_coverage=1.0, **settings)
    return train_tokenizers(config, open_corpus(data, 0), "train", 0, ["<2de>", "<BT>"])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_tag_is_one_piece_of_the_sources_also_with_dropout_and_text_stays_lossless(folder, kind):
    pair = tokenizers_of(data_of(folder), kind, 268, joint=False)
    tag, *rest = pair.source.encode("<2de> a b")
    assert pair.source.pieces([tag]) == ["\u2581<2de>"] and rest == pair.source.encode("a b")
    assert len(pair.target.encode("<2de>")) > 1
    assert pair.source.decode([tag, *rest]) == "<2de> a b"
    assert kind != "bpe" or {pair.source.encode_with_dropout("<2de> a b", 0.5, seed)[0] for seed in range(9)} == {tag}


def test_one_store_holds_the_corpora_in_order_with_tags_and_filters_see_the_plain_text(folder):
    data = data_of(folder)
    corpus, tokenizers = open_corpus(data, 0), tokenizers_of(data)
    assert (data.source_language, data.target_language) == ("en", "und")
    store = open_token_store(corpus, "train", tokenizers, data, is_training=True)
    assert store.statistics.corpora == {"fr": 40, "de": 10, "bt": 2}
    dropped = {reason for reason, count in store.statistics.dropped.items() if count}
    assert dropped == {"empty source", "target is the source"}
    first = store.source_side.ids[store.source_side.offsets[[0, 39, 40, 49, 50, 51]]]
    assert tokenizers.source.pieces(first)[2:] == ["\u2581<2de>"] * 2 + ["\u2581<BT>"] * 2
    validation = open_token_store(corpus, "validation", tokenizers, data, is_training=False)
    assert validation.statistics.corpora == {"fr": 40, "bt": 4}
    assert [pair.source for pair in corpus.pairs("validation")][40:] == ["<BT> a", "\u200b", "<BT> c", "<BT> b"]


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({}, (40 / 57, 10 / 57, 7 / 57)),
        ({"temperature": 1e6}, (1 / 3, 1 / 3, 1 / 3)),
        ({"temperature": 2.0}, tuple(n**0.5 / (40**0.5 + 10**0.5 + 7**0.5) for n in (40, 10, 7))),
        ({"weights": "bt=1 fr=6 de=3"}, (0.6, 0.3, 0.1)),
    ],
)
def test_an_epoch_has_the_shares_and_the_pairs_of_a_corpus_equally_often(folder, settings, shares):
    data = data_of(folder, **settings)
    pairs = items_of_epoch(WEIGHED, times_an_epoch(WEIGHED, data), seed=0)
    assert (pairs is None) == (not settings)
    pairs = np.arange(57) if pairs is None else pairs
    counts = np.bincount(pairs, minlength=57)
    of_corpus = [counts[:40], counts[40:50], counts[50:]]
    np.testing.assert_allclose([item.sum() for item in of_corpus], np.array(shares) * len(pairs), atol=1)
    assert all(np.ptp(item) <= 1 for item in of_corpus) and counts.min() == 1
    assert min(item.max() for item in of_corpus) == 1


def test_the_pairs_that_an_epoch_repeats_depend_on_the_seed_and_differ_between_corpora():
    sizes, times = {"a": 40, "b": 40}, {"a": 1.5, "b": 1.5}
    first, again, other = (items_of_epoch(sizes, times, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    twice = [np.flatnonzero(np.bincount(pairs) == 2) for pairs in (first, other)]
    assert set(twice[0]) != set(twice[1]) and set(twice[0][:20]) != set(twice[0][20:] - 40)


def test_a_limit_is_the_number_of_pairs_of_all_corpora_and_what_a_short_one_lacks_is_of_the_others():
    sizes = {"fr": 40, "de": 10, "bt": 2}
    assert ranges_of(sizes) == [("fr", 0, 40), ("de", 40, 10), ("bt", 50, 2)]
    for limit, numbers in ((1, [0, 0, 1]), (4, [1, 1, 2]), (7, [2, 3, 2]), (30, [18, 10, 2]), (99, [40, 10, 2])):
        assert [number for _, _, number in ranges_of(sizes, limit)] == numbers


def test_losses_and_scores_of_each_corpus_and_a_limit_that_reaches_all(folder):
    data = data_of(folder, validation=f"de={folder}/de.{{en,de}} fr={folder}/fr.{{en,fr}}")
    config = from_dict({"data": {"source": "copy"}, "tokenizer": {"vocabulary_size": 270}})
    config = config.__class__(**vars(config) | {"data": data})
    tokenizers = tokenizers_of(data)

    def loss(params, batch):
        """Of every token: the id of the first token of its source."""
        weights = (0, batch.source.ids[:, :1], 0, 1)
        return LossSums(*(jnp.sum(weight * (batch.target.ids != 0)).astype(jnp.float32) for weight in weights))

    def translate(params, texts):
        return [[Translation("c d" if text == "a b" else "x", 0.0, [2])] for text in texts]

    model = SimpleNamespace(model=None, longest_sequence=None, evaluation_dtype="float32", unsmoothed_loss=loss)
    translator = SimpleNamespace(translate=translate, tokenizers=tokenizers, mesh=make_mesh(config.mesh))
    evaluator = Evaluator(config, translator, model, lambda config: open_corpus(config.data, 0))
    result = evaluator.evaluate({}, "validation", limit=7)
    assert [pair.source for pair in result.pairs] == ["a b"] * 4 + ["<2de> a b", "<2de> f", "<2de> a b"]
    of_fr, of_de = (tokenizers.source.encode(text)[0] for text in ("a b", "<2de> a b"))
    assert (result.metrics["loss_fr"], result.metrics["loss_de"]) == (of_fr, of_de)
    assert min(of_fr, of_de) < result.metrics["loss"] < max(of_fr, of_de)
    assert result.metrics["chrf_fr"] == pytest.approx(100) and result.metrics["chrf_de"] == 0
    assert result.to_json()["corpora"]["fr"]["loss"] == of_fr
    assert "chrF of fr" in [name for name, value, signature in result.rows() if value == "100.00" and signature]
    assert "bleu_compounds_de" in result.metrics and "bleu_compounds_fr" not in result.metrics
    assert list(evaluator.evaluate({}, "validation", limit=1).corpora) == ["fr"]


def test_settings_that_make_no_mixture(folder):
    for settings, problem in (
        ({"train": "de=a.{en,de},fr=b.{en,fr}"}, "'a.{en,de},fr=b.{en,fr}' of de: separate corpora by spaces"),
        ({"train": "compounds_x=a.tsv", "validation": "", "tags": ""}, "data.train: bleu_compounds_x would be two"),
        ({"validation": "it=a.{en,it}"}, "data.validation: no corpus 'it' in data.train; it has fr, de, bt"),
        ({"weights": "fr=1 de=0 bt=1"}, "data.weights: '0' of de is not a number above 0"),
        ({"weights": "fr=1 de=1 bt=1", "temperature": 5.0}, "data.temperature: data.weights is set too"),
        ({"held_out": 0.1}, "data.held_out: data.validation is set too"),
        ({"source": "text"}, "data.source: text has no data.tags"),
    ):
        with pytest.raises(ConfigError, match=re.escape(problem)):
            data_of(folder, **settings)


def test_tags_change_the_store_but_shares_train_no_tokenizers_again(folder, tmp_path):
    data = data_of(folder)
    tokenizers = tokenizers_of(data)
    others = [open_corpus(data_of(folder, **settings), 0) for settings in ({}, {"tags": "de=<2fr> bt=<BT>"})]
    assert len({PairTokenization(other, "train", tokenizers, data).name for other in others}) == 2
    task, trained = SimpleNamespace(open_source=TranslationTask.open_source), []
    task.new_tokenizers = lambda config: trained.append(config) or tokenizers
    for settings in ({}, {"weights": "fr=1 de=1 bt=2"}, {"temperature": 5.0}, {"tags": ""}):
        data = vars(data_of(folder, cache_directory=str(tmp_path), **settings))
        cached_tokenizers(from_dict({"data": data, "tokenizer": {"vocabulary_size": 270}}), task)
    assert len(trained) == 2


def test_training_reads_the_shares_and_measures_the_loss_of_each_corpus(folder, monkeypatch):
    data = vars(data_of(folder, weights="fr=1 de=1 bt=2"))
    config = from_dict({"data": data, "tokenizer": {"vocabulary_size": 270}, "batching": {"tokens_per_update": 4096}})
    mesh, tokenizers = make_mesh(config.mesh), tokenizers_of(config.data)
    task = TranslationTask(config, tokenizers, mesh, objective=SimpleNamespace(longest_sequence=None))
    training = task.training_data()
    assert "  bt: 50.0% of the pairs of an epoch, each 40.00 times" in training.report.text
    pairs = [training.plan.batch(update).pairs for update in range(training.plan.batches_per_epoch)]
    assert np.bincount(np.concatenate(pairs)).tolist() == [1] * 40 + [4] * 10 + [40] * 2
    assert task.training_data().store is training.store
    monkeypatch.setattr(translation, "MEASURED_PAIRS", 17)
    result = TranslationEvaluation(SimpleNamespace(split="validation", headline=dict), [])
    vars(task)["validator"] = SimpleNamespace(
        evaluate=lambda params, split, limit: result,
        store=lambda split: training.store,
        sums_over=lambda params, store, limit, begin: LossSums(0, 7.0 * limit + begin, 0, limit),
    )
    vars(task)["_entropy"] = lambda params, batch: None
    metrics = task.validate({}, "validation").metrics
    assert [metrics[f"train_loss_{name}"] for name in ("fr", "de", "bt")] == [7, 7 + 40 / 8, 7 + 50 / 2]
    others = train_tokenizers(TokenizerConfig("bpe", 268), open_corpus(data_of(folder, tags=""), 0), "train", 0)
    with pytest.raises(ConfigError, match=r"data.tags: <2de> has \d pieces in the vocabulary, not one"):
        TranslationTask(config, others, mesh, objective=SimpleNamespace()).training_data()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Settings of a language model on two texts: lines of 8 and of 4 bytes."""
    folder = tmp_path_factory.mktemp("texts")
    for name, line, number in (("web", "aaaaaaa", 90), ("books", "bbb", 40)):
        (folder / f"{name}.txt").write_text(f"{line}\n" * number)
    train = f"web={folder}/web.txt books={folder}/books.txt"
    data = {"source": "mixture", "train": train, "held_out": 0.1, "weights": "web=1 books=1"}
    data |= {"cache_directory": f"{folder}/cache"}
    return {"task": "language_model", "data": data, "tokenizer": {"kind": "byte"}, "decoding": {"max_new_tokens": 4}}


@pytest.mark.parametrize("kind", ["split", "packed"])
def test_rows_of_a_language_model_have_the_shares_and_its_loss_is_measured_by_corpus(texts, kind):
    batching = {"kind": kind, "context_length": 16, "tokens_per_update": 128}
    config = from_dict(texts | {"batching": batching})

    def loss(params, batch, is_scored):
        weights = (0, batch.ids * is_scored, 0, is_scored)
        return LossSums(*(jnp.sum(weight).astype(jnp.float32) for weight in weights))

    tokenizers, objective = LanguageModelTask.new_tokenizers(config), SimpleNamespace(unsmoothed_loss=loss)
    task = LanguageModelTask(config, tokenizers, make_mesh(config.mesh), objective)
    data = task.training_data()
    assert data.store.corpora == {"web": 81, "books": 36}
    assert data.report.content["mixture"]["shares"] == {"web": pytest.approx(0.5), "books": pytest.approx(0.5)}
    assert "  books: 50.0% of the tokens of an epoch, each 4.50 times" in data.report.text
    rows = np.concatenate([data.plan.rows(update) for update in range(data.plan.updates_per_epoch)])
    ids = data.rows.tokens(rows).ids
    of_web, of_books = ((ids == ByteTokenizer().encode(letter)[0]).sum() for letter in "ab")
    assert of_web == 81 * 7 and of_books == pytest.approx(4.5 * 36 * 3, abs=30 * (kind == "split"))
    again, third = task.training_data().plan, 2 * data.plan.updates_per_epoch
    np.testing.assert_array_equal(again.rows(third), data.plan.rows(third))
    result = task.evaluate({}, "validation")
    sums = {name: sum(ByteTokenizer().encode(line)) + 2 for name, line in (("web", "aaaaaaa"), ("books", "bbb"))}
    assert result.metrics["loss_web"] == sums["web"] / 8 and result.metrics["loss_books"] == sums["books"] / 4
    assert (result.documents, result.num_bytes, result.nll) == (13, 88, 9 * sums["web"] + 4 * sums["books"])
    assert task.evaluate({}, "validation", limit=3).documents == 3


def test_shards_of_documents_keep_corpora_together_and_a_corpus_needs_a_row(texts, tokenized):
    config = from_dict(texts)
    work = DocumentTokenization(open_documents(config.data, 0), "train", ByteTokenizer(), config.data)
    stores = [tokenized(work, count) for count in (1, 4)]
    np.testing.assert_array_equal(stores[0].ids, stores[1].ids)
    assert stores[0].counts() == stores[1].counts() and stores[1].corpora == {"web": 81, "books": 36}
    batching = TextBatchingConfig(context_length=1000, tokens_per_update=8000)
    with pytest.raises(DataError, match="the corpus 'books' fills no row of 1000 tokens"):
        rows_of_mixture(stores[0], batching, 0, {"web": 1, "books": 1})
    with pytest.raises(ConfigError, match="data.validation: no corpus 'wiki' in data.train"):
        TextDataConfig(**texts["data"] | {"validation": "wiki=w.txt"})


def test_each_corpus_has_the_language_of_its_files_and_is_scored_by_it():
    data = DataConfig("mixture", train="fr=a.{en,fr} zh=b.{en,zh} x=c.tsv", target_language="fr")
    assert {name: part.target_language for name, part in data.corpora.items()} == {"fr": "fr", "zh": "zh", "x": "und"}
    assert (data.source_language, data.target_language) == ("und", "und")
    assert DataConfig("mixture", train="a=a.tsv b=b.tsv", target_language="fr").corpora["b"].target_language == "fr"
    for tokenizer, of_zh in (("", "zh"), ("13a", "zh"), ("char", "char")):
        config = from_dict({"data": vars(data), "evaluation": {"bleu_tokenizer": tokenizer, "metrics": "bleu"}})
        for language, wanted in (("zh", of_zh), ("fr", tokenizer or "13a")):
            scores = Evaluator._scores(SimpleNamespace(config=config), ["a"], ["a"], [], language)
            assert f"tok:{wanted}|" in scores.signatures["bleu"]


def test_training_warns_where_translations_would_be_cut(tmp_path):
    (tmp_path / "all.tsv").write_text("".join(f"word\t{'long ' * (number % 20)}word\n" for number in range(200)))
    data = {"source": "text", "train": f"{tmp_path}/all.tsv", "source_language": "en", "target_language": "de"}
    data |= {"max_length_ratio": 99.0}
    tokenizers = TokenizerPair(ByteTokenizer(), ByteTokenizer())
    for extra, warnings in ((50, 1), (95, 0)):
        config = from_dict({"data": data, "decoding": {"max_extra_tokens": extra}})
        result = TranslationTask(config, tokenizers, None, objective=SimpleNamespace())._warnings()
        cut = [
            item for item in result if "47.4% of the targets have over 50 tokens more" in item and "to 95 for" in item
        ]
        assert len(cut) == warnings


@pytest.mark.parametrize(
    ("target", "language", "message"),
    [
        (
            "我们都很喜欢猫和狗。",
            "de",
            r"in Han script, but German is written in Latin; set --config.data.target_language=zh",
        ),
        (
            "мы любим кошек",
            "de",
            r"in Cyrillic script, but German is written in Latin; set --config.data.target_language=CODE",
        ),
        ("我们都很喜欢猫和狗。", "tw", r"'tw' BLEU counts words .* \(Han\) lack; set --config.data.target_language=zh"),
        ("我们都很喜欢猫和狗。", "zh", ""),
        ("мы любим кошек", "ru", ""),
        ("wir mögen Katzen", "de", ""),
    ],
)
def test_a_target_language_that_the_text_is_not_in_is_refused(tmp_path, target, language, message):
    (tmp_path / "all.tsv").write_text(f"a\t{target}\n")
    data = {"source": "text", "train": f"{tmp_path}/all.tsv", "source_language": "en", "target_language": language}
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        require_target_language(from_dict({"data": data}))
    if language == "tw":
        require_target_language(from_dict({"data": data, "evaluation": {"selection": "chrf"}}))


def test_tags_are_required_where_all_training_text_has_one():
    data = DataConfig("mixture", train="de=a.tsv fr=b.tsv", tags="de=<2de> fr=<2fr>")
    assert data.required_tags == ("<2de>", "<2fr>")
    assert DataConfig("mixture", train="de=a.tsv fr=b.tsv", tags="de=<2de>").required_tags == ()
