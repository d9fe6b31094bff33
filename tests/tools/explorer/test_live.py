"""The live model in Node computes what the model in Python computes."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from run_settings import tiny_settings
from tools.explorer.node_worker import ask_worker, node_program

from transformer_jax.config import ConfigError, DataError, TokenizerConfig, from_dict
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.tokenizers import train_tokenizer, train_tokenizers
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tools.explorer import live
from transformer_jax.tools.explorer.live import code_of_tour, live_model, pack_parameters, require_live, tokenizer_table
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.readers import TranslationReader
from transformer_jax.training.sharding import make_mesh

needs_node = pytest.mark.skipif(node_program() is None, reason="needs Node")
SEARCH = {"beamWidth": 2, "lengthPenalty": 0.6, "temperature": 1}
FORCED = [6, 7, 5]
READ = {"action": "read", "text": "b a c", "edits": [], "search": SEARCH, "forced": []}


def trained_run(cache, **model):
    settings = tiny_settings(cache)
    settings["model"] |= model
    config = from_dict(settings)
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    tokenizers = train_tokenizers(config.tokenizer, open_corpus(config.data, 0), config.data.train_split, 0)
    task = TranslationTask(config, tokenizers, mesh)
    params = jax.jit(task.objective.init_params)(jax.random.key(0))
    # Biases and norms that change something, and a larger model than float16 rounds to nothing.
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
            np.testing.assert_allclose(computed, values.reshape(len(values), -1), atol=0.01)
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
]


@needs_node
def test_a_reading_and_an_ablation_are_equal(trained_tiny):
    answers = ask_worker(
        live_model(trained_tiny, []),
        [{**READ, "forced": FORCED}, {**READ, "forced": FORCED, "edits": ["cross.1.head.2"]}],
    )
    read, changed = (each["result"] for each in answers)
    assert read["targetIds"][:3] == FORCED
    reader = TranslationReader(trained_tiny)
    require_equal(reader.read("b a c", read["translation"], with_gradients=False), read)
    ablated = without_head(trained_tiny.params, "decoder_layers_0", "cross_attention", 1)
    reader._trained = replace(trained_tiny, params=ablated)
    expected = reader.read("b a c", changed["translation"], with_gradients=False)
    assert changed["logProbs"] == pytest.approx(expected.log_probs, abs=0.02)
    assert changed["logProbs"] != pytest.approx(read["logProbs"][: len(expected.log_probs)], abs=0.05)


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("settings", VARIANTS)
def test_every_variant_is_equal(tmp_path, settings):
    trained = trained_run(tmp_path, **settings)
    require_live(trained.config)
    reader = TranslationReader(trained)
    tree = reader.search("b a c", 0)
    best = tree.nodes[tree.hypotheses()[0]]
    answers = ask_worker(live_model(trained, []), [READ, {**READ, "forced": FORCED[:2]}])
    assert all("error" not in each for each in answers), answers
    read, forced = (each["result"] for each in answers)
    assert tuple(read["targetIds"]) == tree.prefix(tree.hypotheses()[0])
    assert read["score"] == pytest.approx(best.score, abs=0.02)
    assert [node[2] for node in read["search"]["nodes"]] == [node.token for node in tree.nodes]
    require_equal(reader.read("b a c", read["translation"], with_gradients=False), read)
    assert forced["score"] == pytest.approx(reader.forced("b a c", FORCED[:2]).score, abs=0.02)


@needs_node
def test_effects_and_contrasts(trained_tiny):
    (read,) = ask_worker(model := live_model(trained_tiny, []), [{**READ, "forced": FORCED}])
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
    heads, why, pair, *edited = ask_worker(
        model,
        [
            {"action": "effects", **asked},
            {"action": "contrast", **asked, "prefix": ids[:1], "chosen": ids[1], "other": 9},
            {"action": "neurons", **asked, "kind": "cross", "layer": 1, "head": 2, "row": 1, "column": 2},
            *({**READ, "edits": [name], "forced": ids} for name in names),
        ],
    )
    assert len(heads["result"]) == 6
    changed = ask_worker(model, [{**READ, "edits": ["decoder.1.head.2"], "forced": ids}])[0]["result"]
    differences = np.subtract(changed["logProbs"], read["result"]["logProbs"])
    assert heads["result"][3]["changes"] == pytest.approx(differences.tolist(), abs=1e-5)
    assert heads["result"][3]["kind"] == "decoder" and heads["result"][3]["head"] == 2
    assert len(why["result"]["source"]) == 4 and len(why["result"]["target"]) == 2
    product = pair["result"]["factor"] * np.dot(pair["result"]["query"], pair["result"]["key"])
    assert product == pytest.approx(pair["result"]["scores"][2], abs=1e-5)
    weights = np.reshape(read["result"]["attentions"][2]["weights"][0]["values"], (2, len(ids), 4))
    assert pair["result"]["weights"] == pytest.approx(weights[1, 1].tolist(), abs=1e-5)
    for name, each in zip(names, edited, strict=True):
        assert each["result"]["logProbs"] != read["result"]["logProbs"], name
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
    model = live_model(trained_tiny, [])
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
        ({"norm": "rmsnorm"}, "model.norm=rmsnorm is not implemented in the page; it implements layer_norm"),
        ({"attention": "rectified"}, "model.attention=rectified"),
        ({"kind": "rnn"}, "model.kind=rnn"),
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
    model = reader.live_model([reader.read("b a c", "a b", with_gradients=False)])
    assert 0 < model.description["logitsError"] < 1
    (read,) = ask_worker(model, [READ])
    expected = reader.read("b a c", read["result"]["translation"], with_gradients=False)
    assert read["result"]["logProbs"] == pytest.approx(expected.log_probs, abs=4 * model.description["logitsError"])


def test_every_step_of_the_tour_names_code():
    found = code_of_tour()
    assert len(found) == 10
    assert all(place.startswith("transformer_jax/") for place in found.values())


def test_a_page_of_a_hostile_tokenizer_has_no_markup(trained_tiny):
    reader = TranslationReader(trained_tiny)
    reading = reader.read("b a c", "a b", with_gradients=False)
    model = live_model(trained_tiny, [])
    model.description["tokenizers"][0]["pieces"][5] = "</script><script>alert(1)</script>"
    page = Page("page", [RunName("run", "update 1")])
    page.add_reading(reading, text=0, run=0)
    page.add_model(model)
    html = page.html()
    assert "<script>alert" not in html and html.count("<script>") == 1
    assert "worker-src blob:" in html and "connect-src 'none'" in html
