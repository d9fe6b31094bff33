"""The live model in Node computes what the model in Python computes."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from run_settings import tiny_settings
from tasks.language_model_settings import language_model_config
from tools.explorer.node_worker import ask_worker, node_program

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import ConfigError, DataError, TokenizerConfig, from_dict
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.tokenizers import train_tokenizer, train_tokenizers
from transformer_jax.tasks.language_model.reading import axes_of
from transformer_jax.tasks.language_model.task import LanguageModelTask
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tools.explorer import live
from transformer_jax.tools.explorer.live import (
    code_of_tour,
    live_model,
    logits_error,
    pack_parameters,
    require_live,
    tokenizer_table,
)
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.readers import LanguageModelReader, TranslationReader
from transformer_jax.training.sharding import make_mesh

needs_node = pytest.mark.skipif(node_program() is None, reason="needs Node")
SEARCH = {"beamWidth": 2, "lengthPenalty": 0.6, "temperature": 1}
FORCED = [6, 7, 5]
READ = {"action": "read", "text": "b a c", "edits": [], "search": SEARCH, "forced": []}


def trained_run(cache, **model):
    settings = tiny_settings(cache)
    settings["model"] = model if "kind" in model else settings["model"] | model
    config = from_dict(settings)
    tokenizers = train_tokenizers(config.tokenizer, open_corpus(config.data, 0), config.data.train_split, 0)
    return with_noise(TranslationTask(config, tokenizers, make_mesh(config.mesh, jax.devices()[:1])))


def trained_language_model(cache, parts=None, **model):
    decoding = {"max_new_tokens": 6, "beam_width": 3}
    config = language_model_config(cache, model=model, decoding=decoding, parts=parts or {})
    tokenizers = LanguageModelTask.new_tokenizers(config)
    return with_noise(LanguageModelTask(config, tokenizers, make_mesh(config.mesh, jax.devices()[:1])))


def with_noise(task):
    """Untrained parameters; biases and norms that change something, and values that float16 does not round to nothing."""
    params = jax.jit(task.objective.init_params)(jax.random.key(0))
    noise = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: leaf + 0.3 * noise.standard_normal(leaf.shape).astype(np.float32), params)
    return TrainedRun(task, params, (1,))


@pytest.fixture(scope="module")
def trained_tiny(tmp_path_factory):
    return trained_run(tmp_path_factory.mktemp("cache"), normalization="pre")


def without_head(params, layer, attention, head):
    layers = params[layer]
    changed = {**layers[attention], "output": layers[attention]["output"].at[head].set(0.0)}
    return {**params, layer: {**layers, attention: changed}}


def require_equal(reading, found):
    assert found["tokens"] == reading.tokens
    assert found["logProbs"] == pytest.approx(reading.log_probs, abs=0.02)
    for expected, attention in zip(reading.attentions, found["attentions"], strict=True):
        for name, values in (("weights", expected.weights), ("rollout", expected.rollout)):
            computed = [each["values"] for each in attention[name]]
            expected_values = [] if values is None else values.reshape(len(values), -1)
            np.testing.assert_allclose(computed, expected_values, atol=0.01)
        cosines = [each["values"] for each in attention["valueCosines"]]
        np.testing.assert_allclose(cosines, expected.value_cosines.reshape(len(cosines), -1), atol=0.02)
        norms = attention["valueNorms"]["values"]
        np.testing.assert_allclose(norms, expected.value_norms.ravel(), rtol=0.01, atol=0.02)


VARIANTS = [
    {},
    {"num_decoder_layers": 2, "attention": "unscaled", "tying": "none", "positions": "none"},
    {"attention": "biased", "positions": "fairseq", "feed_forward": "gelu", "embedding": "unscaled"},
    {"normalization": "pre", "positions": "learned", "feed_forward": "gated_silu", "tying": "output"},
    {"logits_bias": True, "feed_forward": "exact_gelu", "tying": "embeddings", "embedding": "zero_padding"},
    {"feed_forward": "silu", "d_key": 6, "d_value": 10, "logits_bias": True, "normalization": "pre"},
    {"positions": "rope", "attention": "multi_query,qk_norm", "norm": "rmsnorm", "feed_forward": "relu_squared"},
]
RNN = {"kind": "rnn", "d_embedding": 12, "d_hidden": 12, "d_attention": 10}
LOCATION = {"attention": "location_sensitive", "wiring": "bahdanau", "cell": "gru", "location_taps": 4}
LAYERS = {"num_encoder_layers": 2, "num_decoder_layers": 2}
ONE_WAY = {"bidirectional_encoder": False, "decoder_start": "last"}
RECURRENT_VARIANTS = [
    {"attention": "dot", "reverse_source": True, **LAYERS, **ONE_WAY},
    {"attention": "scaled_dot", "input_feeding": False, "tying": "output", **ONE_WAY},
    {"attention": "general", "cell": "gru", **LAYERS},
    {"attention": "additive", "wiring": "bahdanau", "decoder_start": "zeros", "d_readout": 6},
    {"attention": "normalized_additive", "tying": "all"},
    {"attention": "location", "max_attended_positions": 50},
    {"attention": "local_m", "attention_window": 1},
    {"attention": "local_p", "attention_window": 2},
    LOCATION,
    {**LOCATION, "attention_weights": "sharpened"},
    {**LOCATION, "attention_weights": "smoothed"},
    {"attention": "cumulative_location_sensitive", "cell": "gru"},
]


@needs_node
def test_a_reading_and_an_ablation_are_equal(trained_tiny):
    answers = ask_worker(
        live_model(trained_tiny),
        [{**READ, "forced": FORCED}, {**READ, "forced": FORCED, "edits": ["cross.1.head.2"]}],
    )
    read, changed = (each["result"] for each in answers)
    assert read["targetIds"][:3] == FORCED
    reader = TranslationReader(trained_tiny)
    require_equal(reader.read("b a c", read["translation"], with_gradients=False), read)
    ablated = without_head(trained_tiny.params, "decoder_layers_0", "cross_attention", 1)
    reader.trained = replace(trained_tiny, params=ablated)
    expected = reader.read("b a c", changed["translation"], with_gradients=False)
    assert changed["logProbs"] == pytest.approx(expected.log_probs, abs=0.02)
    assert changed["logProbs"] != pytest.approx(read["logProbs"][: len(expected.log_probs)], abs=0.05)


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("settings", [*VARIANTS, *({**RNN, **each} for each in RECURRENT_VARIANTS)])
def test_every_variant_is_equal(tmp_path, settings):
    require_equal_to_python(trained_run(tmp_path, **settings))


@needs_node
def test_an_rnn_is_equal(tmp_path):
    trained = trained_run(tmp_path, **RNN, **LOCATION)
    names = ["cross.1.head.1", "start", "backward", "location"]
    asked = {"text": "b a c", "targetIds": FORCED, "edits": []}
    place = {"kind": "cross", "layer": 1, "head": 1, "row": 1, "column": 2}
    answers = ask_worker(
        live_model(trained),
        [
            {**READ, "forced": FORCED},
            {"action": "effects", **asked, "names": names},
            {"action": "neurons", **asked, **place},
            {"action": "contrast", **asked, "prefix": FORCED[:1], "chosen": 7, "other": 8},
        ],
    )
    read, effects, pair, why = (each["result"] for each in answers)
    require_equal(TranslationReader(trained).read("b a c", read["translation"], with_gradients=False), read)
    assert all(np.abs(changes).max() > 1e-3 for changes in effects), dict(zip(names, effects, strict=True))
    weights = np.reshape(read["attentions"][0]["weights"][0]["values"], (-1, 4))
    assert pair["weights"] == pytest.approx(weights[1].tolist(), abs=1e-5)
    assert sum(pair["terms"]) == pytest.approx(pair["scores"][2], abs=1e-5)
    assert [name for name, _ in pair["columns"]] == ["query", "key", "location"]
    assert len(why["source"]) == 4 and len(why["target"]) == 2
    assert read["states"]["source"]["size"] == 24 and read["states"]["target"]["size"] == 12


def require_equal_to_python(trained):
    require_live(trained.config)
    reader = TranslationReader(trained)
    tree = reader.search("b a c", 0)
    best = tree.nodes[tree.hypotheses()[0]]
    answers = ask_worker(live_model(trained), [READ, {**READ, "forced": FORCED[:2]}])
    assert all("error" not in each for each in answers), answers
    read, forced = (each["result"] for each in answers)
    assert tuple(read["targetIds"]) == tree.prefix(tree.hypotheses()[0])
    assert read["score"] == pytest.approx(best.score, abs=0.02)
    assert [node[2] for node in read["search"]["nodes"]] == [node.token for node in tree.nodes]
    require_equal(reader.read("b a c", read["translation"], with_gradients=False), read)
    assert forced["score"] == pytest.approx(reader.forced("b a c", FORCED[:2]).score, abs=0.02)


LANGUAGE_MODELS = [
    {},
    {"positions": "sinusoidal", "tying": "none", "logits_bias": True, "attention": "biased", "normalization": "post"},
    {"positions": "rope", "feed_forward": "geglu", "attention": "qk_norm", "d_key": 6},
]
GROUPED = {
    "num_heads": 4,
    "attention": "grouped_query",
    "norm": "rmsnorm",
    "positions": "rope",
    "feed_forward": "swiglu",
}


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("settings", LANGUAGE_MODELS)
def test_every_language_model_is_equal(tmp_path, settings):
    require_equal_continuation(trained_language_model(tmp_path, **settings))


@needs_node
def test_a_language_model_with_parts_is_equal(tmp_path):
    parts = {"grouped_query": {"key_value_heads": 2}, "rope": {"share": 0.5}, "swiglu": {"match_parameters": True}}
    trained = trained_language_model(tmp_path, parts, **GROUPED)
    require_equal_continuation(trained)
    prompt = [*trained.task.tokenizer.encode("a d"), 9]
    search = live_model(trained).description["search"] | {"temperature": 1}
    asked = {"text": "a d", "edits": [], "search": search}
    answers = ask_worker(
        live_model(trained),
        [
            {"action": "read", **asked, "forced": prompt},
            {"action": "read", **asked, "forced": [*prompt, EOS_ID]},
            {"action": "read", **asked, "text": "a" * 32, "forced": []},
            {"action": "read", **asked, "forced": prompt, "edits": ["decoder.1"]},
            {"action": "contrast", **asked, "prefix": prompt, "chosen": 7, "other": 8},
        ],
    )
    changed, over, too_long, skipped, why = answers
    assert changed["result"]["targetIds"][:4] == prompt and changed["result"]["given"] == 4
    assert over["result"]["targetIds"] == [*prompt, EOS_ID]
    assert too_long["error"].startswith("32 tokens; the model was trained on 32")
    of_layer = np.reshape(
        skipped["result"]["attentions"][0]["rollout"][0]["values"], (-1, len(skipped["result"]["targetIds"]))
    )
    np.testing.assert_array_equal(of_layer, np.eye(len(of_layer)), "a layer that is off passes its input on")
    assert why["result"]["source"] == [] and len(why["result"]["target"]) == 5


def require_equal_continuation(trained):
    require_live(trained.config)
    reader, model = LanguageModelReader(trained), live_model(trained)
    tree = reader.search("a d", 0)
    prompt, ending = trained.task.tokenizer.encode("a d"), tree.prefix(tree.hypotheses()[0])
    search = {**model.description["search"], "temperature": 1}
    (answer,) = ask_worker(model, [{"action": "read", "text": "a d", "edits": [], "search": search, "forced": []}])
    read = answer["result"]
    assert read["targetIds"] == [*prompt, *ending]
    assert [node[2] for node in read["search"]["nodes"]] == [node.token for node in tree.nodes]
    assert read["score"] == pytest.approx(tree.nodes[tree.hypotheses()[0]].score, abs=0.02)
    tokens = axes_of(trained.task.tokenizer, read["targetIds"])
    require_equal(reader._read(trained.params, "", None, tokens, [read["targetIds"]], with_gradients=False), read)


@needs_node
def test_effects_and_contrasts(trained_tiny):
    (read,) = ask_worker(model := live_model(trained_tiny), [{**READ, "forced": FORCED}])
    ids = read["result"]["targetIds"]
    asked = {"text": "b a c", "targetIds": ids, "edits": []}
    names = [
        "positions",
        "causal",
        "padding",
        "scale",
        "encoder.1",
        "decoder.1",
        "encoder.1.residual",
        "decoder.1.residual",
    ]
    parts = ["encoder.1.head.1", "decoder.1.head.2"]
    heads, why, pair, alone, *edited = ask_worker(
        model,
        [
            {"action": "effects", **asked, "names": parts},
            {"action": "contrast", **asked, "prefix": ids[:1], "chosen": ids[1], "other": 9},
            {"action": "neurons", **asked, "kind": "cross", "layer": 1, "head": 2, "row": 1, "column": 2},
            {"action": "contrast", **asked, "prefix": [], "chosen": ids[0], "other": 9},
            *({**READ, "edits": [name], "forced": ids} for name in names),
        ],
    )
    changed = ask_worker(model, [{**READ, "edits": ["decoder.1.head.2"], "forced": ids}])[0]["result"]
    differences = np.subtract(changed["logProbs"], read["result"]["logProbs"])
    assert heads["result"][1] == pytest.approx(differences.tolist(), abs=1e-5)
    assert len(why["result"]["source"]) == 4 and len(why["result"]["target"]) == 2
    assert alone["result"]["target"] == [], "<s> alone cannot be masked"
    product = pair["result"]["factor"] * np.sum(pair["result"]["terms"])
    assert product == pytest.approx(pair["result"]["scores"][2], abs=1e-5)
    weights = np.reshape(read["result"]["attentions"][2]["weights"][0]["values"], (2, len(ids), 4))
    assert pair["result"]["weights"] == pytest.approx(weights[1, 1].tolist(), abs=1e-5)
    for name, each in zip(names, edited, strict=True):
        assert each["result"]["logProbs"] != read["result"]["logProbs"], name
    for number, share in ((4, 1.0), (6, 0.0)):
        (weights,) = edited[number]["result"]["attentions"][0]["weights"]
        (rollout,) = edited[number]["result"]["attentions"][0]["rollout"]
        mean = np.reshape(weights["values"], (2, 4, 4)).mean(axis=0)
        np.testing.assert_allclose(
            np.reshape(rollout["values"], (4, 4)), share * np.eye(4) + (1 - share) * mean, atol=1e-5
        )
    assert len(edited[2]["result"]["tokens"]["source"]) == 16, "the padding is attended to"


TEXTS = [
    "",
    " ",
    "Ein Hund,  der bellt!",
    "a\u2581b\x1bc",
    "na\u00efve \u4f60\u597d \U0001f600 x_1",
    "tab\tand\nline",
    "<s></s>&amp;",
]


@needs_node
@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character", "byte"])
def test_tokenizers_are_equal(kind, trained_tiny):
    text = ["Ein Hund bellt, der Mann schl\u00e4ft.", "ein  Mann x_1 a b c \u4f60"] * 3
    config = TokenizerConfig(kind=kind, vocabulary_size={"bpe": 320, "unigram": 287}.get(kind, 40))
    tokenizer = train_tokenizer(config, text)
    model = live_model(trained_tiny)
    table = model._replace(description={**model.description, "tokenizers": [tokenizer_table(tokenizer)]})
    ids = [tokenizer.encode(each) for each in TEXTS]
    answers = ask_worker(
        table,
        [
            *({"action": "encode", "text": each} for each in TEXTS),
            *({"action": "decode", "ids": [1, *each, 3, 2]} for each in ids),
        ],
    )
    assert [each["result"] for each in answers] == [*ids, *(tokenizer.decode([1, *each, 3, 2]) for each in ids)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"projection": "soft_capped"},
            "model.projection=soft_capped is not implemented in the page; it implements linear",
        ),
        (
            {"normalization": "rezero"},
            "model.normalization=rezero is not implemented in the page; it implements post, pre",
        ),
        ({"attention": "qk_norm,soft_cap"}, "model.attention=qk_norm,soft_cap"),
        ({"kind": "rnn", "attention": "none"}, "model.attention=none"),
    ],
)
def test_what_javascript_lacks_is_refused_by_name(tmp_path, model, message):
    settings = tiny_settings(tmp_path)
    settings["model"] = model if "kind" in model else settings["model"] | model
    with pytest.raises(ConfigError, match=message):
        require_live(from_dict(settings))


def test_parameters_that_do_not_fit(monkeypatch, trained_tiny):
    for value in (1e30, np.nan):
        with pytest.raises(DataError, match="decoder/kernel has NaN, infinity"):
            pack_parameters({"decoder": {"kernel": np.full((2, 2), value, np.float32)}})
    monkeypatch.setattr(live, "FLOAT16_BYTES", 8)
    values = np.array([[1.0, -0.5, 0.25], [0.0, 0.0, 0.0]], np.float32)
    (entry,), data, stored = pack_parameters({"kernel": values})
    assert len(data) == 6 and len(entry["scales"]) == 2
    np.testing.assert_allclose(stored["kernel"], values, atol=0.005)
    monkeypatch.setattr(live, "INT8_BYTES", 5)
    with pytest.raises(ConfigError, match="6 parameters; a page holds at most 5"):
        pack_parameters({"kernel": values})


@needs_node
@pytest.mark.slow
def test_8_bits_and_their_error(monkeypatch, trained_tiny):
    monkeypatch.setattr(live, "FLOAT16_BYTES", 8)
    reader = TranslationReader(trained_tiny)
    model = live_model(trained_tiny)
    error = logits_error(trained_tiny, [("b a c", "a b")])
    assert 0 < error < 1
    (read,) = ask_worker(model, [READ])
    expected = reader.read("b a c", read["result"]["translation"], with_gradients=False)
    assert read["result"]["logProbs"] == pytest.approx(expected.log_probs, abs=4 * error)


def test_every_step_of_the_tour_names_code():
    found = code_of_tour()
    assert {"embedding", "search", "rope", "alignment"} <= set(found)
    assert all(place.startswith("transformer_jax/") for place in found.values())


def test_a_page_of_a_hostile_tokenizer_has_no_markup(trained_tiny):
    reader = TranslationReader(trained_tiny)
    reading = reader.read("b a c", "a b", with_gradients=False)
    model = live_model(trained_tiny)
    model.description["tokenizers"][0]["pieces"][5] = "</script><script>alert(1)</script>"
    page = Page("page", [RunName("run", "update 1")])
    page.add_reading(reading, text=0, run=0)
    page.add_model(model)
    html = page.html()
    assert "<script>alert" not in html and html.count("<script>") == 1
    assert "worker-src blob:" in html and "connect-src 'none'" in html
