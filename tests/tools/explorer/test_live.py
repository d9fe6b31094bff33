"""The live model in Node computes the same as the model in Python."""

import json
import subprocess
from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_settings import tiny_settings
from tools.explorer.node_worker import ask_worker, needs_node
from tools.explorer.small_runs import LOCATION, RNN, language_model_run, translation_run

from transformer_jax.config import ConfigError, DataError, TokenizerConfig, from_dict
from transformer_jax.data.tokenizers.listed import WordTokenizer
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizer
from transformer_jax.models.inspection import recorded, without_head
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.language_model.language_model_task import axes_of
from transformer_jax.tasks.remarks import Remarks, TrainingInput
from transformer_jax.tools.explorer import live
from transformer_jax.tools.explorer.live import worker_source
from transformer_jax.tools.explorer.live_settings import require_live
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.readers import READERS, TranslationReader

FORCED = [6, 7, 5]
SEARCH = {"beamWidth": 2, "lengthPenalty": 0.6, "temperature": 1}
READ = {"action": "read", "text": "b a c", "edits": [], "search": SEARCH, "forced": []}


@pytest.fixture(scope="module")
def trained_tiny(tmp_path_factory):
    return translation_run(tmp_path_factory.mktemp("cache"), normalization="pre")


def require_equal(reading, answer):
    assert answer["tokens"] == reading.tokens
    assert answer["logProbs"] == pytest.approx(reading.log_probs, abs=0.02)
    for expected, attention in zip(reading.attentions, answer["attentions"], strict=True):
        for name, values in (("weights", expected.weights), ("rollout", expected.rollout)):
            computed = [layer["values"] for layer in attention[name]]
            np.testing.assert_allclose(computed, [] if values is None else values.reshape(len(values), -1), atol=0.01)
        cosines = [layer["values"] for layer in attention["valueCosines"]]
        np.testing.assert_allclose(cosines, expected.value_cosines.reshape(len(cosines), -1), atol=0.02)
        norms = attention["valueNorms"]["values"]
        np.testing.assert_allclose(norms, expected.value_norms.ravel(), rtol=0.01, atol=0.02)


def require_equal_to_python(trained):
    """The search for a text, and its reading."""
    require_live(trained.config)
    reader, model = READERS[trained.config.task](trained), live.live_model(trained)
    tree = reader.search("b a c", 0)
    best = tree.hypotheses()[0]
    (read,) = ask_worker(model, {**READ, "search": {**model.description["search"], "temperature": 1}})
    tokens = tuple(node.token for node in tree.path(best))
    assert [node[2] for node in read["search"]["nodes"]] == [node.token for node in tree.nodes]
    assert read["score"] == pytest.approx(tree.nodes[best].score, abs=0.02)
    assert read["targetIds"][-len(tokens) :] == [*tokens]
    if trained.config.task == "translation":
        reading = reader.read("b a c", read["translation"], with_gradients=False)
    else:
        tokens = axes_of(trained.task.tokenizer, read["targetIds"])
        reading = reader._read(trained.params, "", None, tokens, [read["targetIds"]], with_gradients=False)
    require_equal(reading, read)


VARIANTS = [
    {},
    {"num_decoder_layers": 2, "attention": "unscaled", "tying": "none", "positions": "none"},
    {"attention": "biased", "positions": "fairseq", "feed_forward": "gelu", "embedding": "unscaled"},
    {"normalization": "pre", "positions": "learned", "feed_forward": "swiglu", "tying": "output"},
    {"logits_bias": True, "feed_forward": "exact_gelu", "tying": "embeddings", "embedding": "zero_padding"},
    {"feed_forward": "silu", "d_key": 6, "d_value": 10, "logits_bias": True, "normalization": "pre"},
    {"positions": "rope", "attention": "multi_query,qk_norm", "norm": "rmsnorm", "feed_forward": "relu_squared"},
]
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
LANGUAGE_MODELS = [
    {},
    {"positions": "rope", "feed_forward": "geglu", "attention": "qk_norm", "d_key": 6},
]
GROUPED = {"num_heads": 4, "attention": "grouped_query", "norm": "rmsnorm", "positions": "rope"}


TRANSLATION = [
    (translation_run, settings) for settings in (*VARIANTS, *(RNN | settings for settings in RECURRENT_VARIANTS))
]


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "settings"), [*TRANSLATION, *((language_model_run, settings) for settings in LANGUAGE_MODELS)]
)
def test_every_variant_is_equal(make, settings, tmp_path):
    require_equal_to_python(make(tmp_path, **settings))


@needs_node
def test_a_reading_and_an_ablation_are_equal(trained_tiny):
    asked = {**READ, "forced": FORCED}
    read, changed = ask_worker(live.live_model(trained_tiny), asked, {**asked, "edits": ["cross.1.head.2"]})
    assert read["targetIds"][:3] == FORCED
    reader = TranslationReader(trained_tiny)
    assert read["score"] == pytest.approx(reader.forced("b a c", (*FORCED,)).score, abs=0.02)
    require_equal(reader.read("b a c", read["translation"], with_gradients=False), read)
    ablated = without_head(trained_tiny.params, "decoder_layers_0/cross_attention", 1)
    reader = TranslationReader(replace(trained_tiny, params=ablated))
    expected = reader.read("b a c", changed["translation"], with_gradients=False)
    assert changed["logProbs"] == pytest.approx(expected.log_probs, abs=0.02)
    assert changed["logProbs"] != pytest.approx(read["logProbs"][: len(expected.log_probs)], abs=0.05)
    encoder, _, cross = changed["attentions"]
    norms = np.reshape(cross["valueNorms"]["values"], (2, 4))
    assert norms[0].min() > 0 and norms[1].max() == 0, "the head adds nothing"
    on, source = np.reshape(cross["weights"][0]["values"], (2, -1, 4))[0], encoder["rollout"][-1]["values"]
    np.testing.assert_allclose(
        np.reshape(cross["rollout"][0]["values"], (-1, 4)), on @ np.reshape(source, (4, 4)) / 2, atol=1e-5
    )


@pytest.mark.slow
@needs_node
def test_an_rnn_is_equal(tmp_path):
    trained = translation_run(tmp_path, **RNN, **LOCATION)
    names = ["cross.1.head.1", "start", "backward", "location"]
    asked = {"text": "b a c", "targetIds": FORCED, "edits": []}
    read, effects, pair, why = ask_worker(
        live.live_model(trained),
        {**READ, "forced": FORCED},
        {"action": "effects", **asked, "names": names},
        {"action": "neurons", **asked, "kind": "cross", "layer": 1, "head": 1, "row": 1, "column": 2},
        {"action": "contrast", **asked, "prefix": FORCED[:1], "chosen": 7, "other": 8},
    )
    require_equal(TranslationReader(trained).read("b a c", read["translation"], with_gradients=False), read)
    assert len(effects) == 4 and all(np.abs(changes).max() > 1e-3 for changes in effects), effects
    weights = np.reshape(read["attentions"][0]["weights"][0]["values"], (-1, 4))
    assert pair["weights"] == pytest.approx(weights[1].tolist(), abs=1e-5)
    assert sum(pair["terms"]) == pytest.approx(pair["scores"][2], abs=1e-5)
    assert [name for name, _ in pair["columns"]] == ["query", "key", "location"]
    assert (len(why["source"]), len(why["target"])) == (4, 2)
    assert why["input"] == read["tokens"]["input"][:2]
    assert (read["states"]["source"]["size"], read["states"]["target"]["size"]) == (24, 12)


@needs_node
@pytest.mark.slow
def test_a_language_model_with_parts_is_equal(tmp_path):
    parts = {"grouped_query": {"key_value_heads": 2}, "rope": {"share": 0.5}, "swiglu": {"match_parameters": True}}
    trained = language_model_run(tmp_path, parts, **GROUPED, feed_forward="swiglu")
    require_equal_to_python(trained)
    prompt, model = [*trained.task.tokenizer.encode("a d"), 9], live.live_model(trained)
    asked = {**READ, "text": "a d", "search": model.description["search"] | {"temperature": 1}}
    changed, too_long, forced = ask_worker(
        model,
        {**asked, "forced": prompt},
        {**asked, "text": "a" * 32},
        {**asked, "action": "force", "prompt": prompt[:-1], "forced": prompt[-1:]},
    )
    expected = READERS["language_model"](trained).forced("a d", (prompt[-1],))
    assert forced["text"] == expected.text and forced["text"], "the forced token is a part of it"
    assert [forced[name] for name in ("logProb", "score")] == pytest.approx(
        [expected.log_prob, expected.score], abs=0.02
    )
    assert changed["targetIds"][:4] == prompt and changed["given"] == 4
    assert too_long["error"].startswith("the prompt has 32 tokens; at most 31 leave room")


@needs_node
def test_effects_and_contrasts(trained_tiny):
    (read,) = ask_worker(model := live.live_model(trained_tiny), {**READ, "forced": FORCED})
    ids = read["targetIds"]
    asked = {"text": "b a c", "targetIds": ids, "edits": []}
    residuals = ["encoder.1.residual", "decoder.1.residual"]
    names = ["positions", "causal", "padding", "scale", "encoder.1", "decoder.1", *residuals]
    heads, why, pair, alone, warm, halved, whole, moved, without, *edited = ask_worker(
        model,
        {"action": "effects", **asked, "names": ["encoder.1.head.1", "decoder.1.head.2"]},
        {"action": "contrast", **asked, "prefix": ids[:1], "chosen": ids[1], "other": 9},
        {"action": "neurons", **asked, "kind": "cross", "layer": 1, "head": 2, "row": 1, "column": 2},
        {"action": "contrast", **asked, "prefix": [], "chosen": ids[0], "other": 9},
        {"action": "effects", **asked, "names": ["positions"], "temperature": 2},
        {"action": "contrast", **asked, "prefix": ids[:1], "chosen": ids[1], "other": 9, "temperature": 2},
        *({**READ, "edits": off, "forced": ids, "search": SEARCH | {"temperature": 2}} for off in ([], ["positions"])),
        *({**READ, "edits": [name], "forced": ids} for name in ("decoder.1.head.2", *names)),
    )
    assert heads[1] == pytest.approx(np.subtract(without["logProbs"], read["logProbs"]).tolist(), abs=1e-5)
    assert warm[0] == pytest.approx(np.subtract(moved["logProbs"], whole["logProbs"]).tolist(), abs=1e-5)
    assert (len(why["source"]), len(why["target"])) == (4, 2)
    assert [halved["difference"], *halved["source"]] == pytest.approx(
        [value / 2 for value in (why["difference"], *why["source"])]
    )
    assert alone["target"] == [], "<s> alone cannot be masked"
    assert pair["factor"] * np.sum(pair["terms"]) == pytest.approx(pair["scores"][2], abs=1e-5)
    weights = np.reshape(read["attentions"][2]["weights"][0]["values"], (2, len(ids), 4))
    assert pair["weights"] == pytest.approx(weights[1, 1].tolist(), abs=1e-5)
    of_name = dict(zip(names, edited, strict=True))
    assert all(answer["logProbs"] != read["logProbs"] for answer in edited)
    for name, share in (("encoder.1", 1.0), ("encoder.1.residual", 0.0)):
        encoder = of_name[name]["attentions"][0]
        mean = np.reshape(encoder["weights"][0]["values"], (2, 4, 4)).mean(axis=0)
        expected = share * np.eye(4) + (1 - share) * mean
        np.testing.assert_allclose(encoder["rollout"][0]["values"], expected.ravel(), atol=1e-5)
    assert len(of_name["padding"]["tokens"]["source"]) == 16, "the padding is attended to"


def residual_stream(model, params, *inputs):
    """The vectors [1, T, D] of the decoder's residual stream, its embedding and after every
    sublayer; and its attentions."""
    points = []

    def keep(method, arguments, options, context):
        returned = method(*arguments, **options)
        path = "/".join(context.module.path)
        if path.startswith("decoder_layers") and path.endswith("_residual"):
            if context.method_name == "before" and not points:
                points.append(arguments[0])
            if context.method_name == "after":
                points.append(returned)
        return returned

    with nn.intercept_methods(keep), recorded() as activations:
        model.apply({"params": params}, *inputs, train=False, mutable=["intermediates"])
    return points, activations.attention


@needs_node
@pytest.mark.parametrize(
    ("make", "normalization"),
    [
        *((translation_run, "post"), (language_model_run, "pre")),
        pytest.param(translation_run, "pre", marks=pytest.mark.slow),
        pytest.param(language_model_run, "post", marks=pytest.mark.slow),
    ],
)
def test_the_logit_lens_and_a_softmax_row_are_equal(make, normalization, tmp_path):
    trained = make(tmp_path, normalization=normalization)
    is_translation = make is translation_run
    ids, text = [6, 7, 5, 2], "b a c"
    kind, place = ("cross", "cross_attention") if is_translation else ("decoder", "self_attention")
    asked = {"text": text, "targetIds": ids, "edits": []}
    lens, pair, after = ask_worker(
        live.live_model(trained),
        {"action": "lens", **asked},
        {"action": "neurons", **asked, "kind": kind, "layer": 1, "head": 2, "row": 2, "column": 0},
        {"action": "nextToken", **asked, "row": 2},
    )
    sides = [[*trained.tokenizers[0].encode(text), 2]] if is_translation else []
    inputs = [Tokens.from_ids(jnp.asarray([side], jnp.int32)) for side in (*sides, ids)]
    params, model = trained.params, trained.model
    points, attention = residual_stream(model, params, *inputs)
    sublayers = ("self", "cross", "feed_forward") if is_translation else ("self", "feed_forward")
    layers = trained.config.model.decoder_depth
    names = [f"decoder.{layer + 1}.{sublayer}" for layer in range(layers) for sublayer in sublayers]
    assert [point["name"] for point in lens] == ["decoder.embedding", *names]
    for point, expected in zip(lens, points, strict=True):
        logits = model.apply(
            {"params": params}, expected, method=lambda module, x: module.projection.logits(module.decoder_norm(x))
        )
        log_probs = np.asarray(jax.nn.log_softmax(logits[0].astype(jnp.float32)))
        written = [row["logProb"] for row in point["rows"]]
        assert written == pytest.approx(log_probs[np.arange(len(ids)), ids].tolist(), abs=0.02), point["name"]
        for row, of_token in zip(point["rows"], log_probs, strict=True):
            assert [value for *_, value in row["best"]] == pytest.approx(
                np.sort(of_token[2:])[::-1][:5].tolist(), abs=0.02
            )
    assert np.asarray(jax.nn.log_softmax(jnp.asarray(after["logits"]))).tolist() == pytest.approx(
        log_probs[2].tolist(), abs=0.02
    ), "the last point of the lens is the model"
    expected = attention[f"decoder_layers_0/{place}"]
    visible = len(pair["scores"])
    assert pair["scores"] == pytest.approx(expected.scores[0, 1, 2, :visible].tolist(), abs=0.02)
    assert pair["weights"] == pytest.approx(expected.weights[0, 1, 2, :visible].tolist(), abs=0.01)
    assert visible == (4 if is_translation else 3) and not expected.weights[0, 1, 2, visible:].any()


@needs_node
@pytest.mark.parametrize(
    ("kind", "is_older"),
    [("bpe", False), ("unigram", False), ("word", False), ("word", True), ("character", False), ("byte", False)],
)
def test_tokenizers_are_equal(kind, is_older, trained_tiny):
    text = ["Ein Hund bellt, der Mann schl\u00e4ft.", "ein  Mann x_1 a b c \u4f60"] * 3
    config = TokenizerConfig(kind=kind, vocabulary_size={"bpe": 322, "unigram": 289}.get(kind, 40))
    tokenizer = train_tokenizer(config, text, ["<2de>", "<2fr>"] if kind in ("bpe", "unigram") else [])
    if kind == "word" and is_older:
        tokenizer = WordTokenizer(
            [tokenizer.pieces([number])[0] for number in range(4, tokenizer.vocabulary_size)], True
        )
    model = live.live_model(trained_tiny)
    table = model._replace(description={**model.description, "tokenizers": [live.tokenizer_table(tokenizer)]})
    texts = ["", " ", "Ein Hund,  der bellt!", "a\u2581b\x1bc", "tab\tand\nline", "<s></s>&amp;"]
    texts += [
        "<2de> Ein Hund bellt <2fr>der x<2de>",
        "a \ufeffb\ufeff",
        "na\u00efve \u4f60\u597d \U0001f600 x_1",
        "\u0939\u093f\u0928\u094d\u0926\u0940 e\u0301 m\u00b2 \u00bd \u0645\u06cc\u200c\u062e",
    ]
    ids = [tokenizer.encode(text) for text in texts]
    surrounded = [[1, *row, 3, 2] for row in ids]
    encode = [{"action": "encode", "text": text} for text in texts]
    decode = [{"action": "decode", "ids": row} for row in surrounded]
    assert ask_worker(table, *encode, *decode) == [*ids, *map(tokenizer.decode, surrounded)]


@needs_node
@pytest.mark.parametrize("kind", ["bpe", "word", "character", "byte"])
def test_remarks_are_equal(kind, trained_tiny):
    text = ["the cat sleeps", "a dog barks at the small cats"] * 9
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocabulary_size={"bpe": 300}.get(kind, 60)), text)
    seen = {token for ids in tokenizer.encode_batch(text) for token in ids}
    training = TrainingInput(30, np.isin(np.arange(tokenizer.vocabulary_size), list(seen)))
    described = {"longest": 30, "limit": 30, "unseen": sorted(training.unseen_ids(tokenizer))}
    texts = ["the cat", "the \U0001f408 cat", "Кошка a", "猫（a）", "the cat sleeps " * 12, "e\u0301 \u0939\u093f"]
    script = f"""globalThis.self = globalThis; {worker_source()}
        const source = makeTokenizer({json.dumps(live.tokenizer_table(tokenizer))}), training = {json.dumps(described)};
        training.unseen = new Set(training.unseen);
        console.log(JSON.stringify({json.dumps(texts)}.map((text) => remarksOn({{ source, training }}, text))));"""
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    for text, answer in zip(texts, json.loads(done.stdout), strict=True):
        remarks = Remarks("this text", tokenizer, training)
        remarks.read([text])
        assert answer == remarks.lines(), text
    assert live.live_model(trained_tiny).description["training"]["unseen"]


def test_a_setting_that_javascript_lacks_is_named(tmp_path):
    settings = tiny_settings(tmp_path)
    for name, value in (("projection", "soft_capped"), ("attention", "qk_norm,soft_cap"), ("attention", "none")):
        model = {"kind": "rnn"} if value == "none" else settings["model"]
        changed = settings | {"model": model | {name: value}}
        with pytest.raises(ConfigError, match=f"model.{name}={value} is not implemented .*; it implements "):
            require_live(from_dict(changed))


def test_parameters_that_do_not_fit(monkeypatch):
    for value in (1e30, np.nan):
        with pytest.raises(DataError, match="decoder/kernel has NaN, infinity"):
            live.pack_parameters({"decoder": {"kernel": np.full((2, 2), value, np.float32)}})
    monkeypatch.setattr(live, "FLOAT16_BYTES", 8)
    values = np.array([[1.0, -0.5, 0.25], [0.0, 0.0, 0.0]], np.float32)
    (entry,), data, stored = live.pack_parameters({"kernel": values})
    assert len(data) == 6 and len(entry["scales"]) == 2
    np.testing.assert_allclose(stored["kernel"], values, atol=0.005)
    monkeypatch.setattr(live, "INT8_BYTES", 5)
    with pytest.raises(ConfigError, match="6 parameters; a page holds at most 5"):
        live.pack_parameters({"kernel": values})


def test_a_page_of_a_hostile_tokenizer_has_no_markup(trained_tiny):
    model = live.live_model(trained_tiny)
    model.description["tokenizers"][0]["pieces"][5] = "</script><script>alert(1)</script>"
    page = Page("page", [RunName("run", "update 1")])
    page.add_reading(TranslationReader(trained_tiny).read("b a c", "a b", with_gradients=False), text=0, run=0)
    page.add_model(model)
    html = page.html()
    assert "<script>alert" not in html and html.count("<script>") == 1
    assert "worker-src blob:" in html and "connect-src 'none'" in html
