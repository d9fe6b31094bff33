"""The examples of docs/extending*.md: what they add works like what the package has."""

import ast
import json
import re
import shlex
import sqlite3
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer_jax
from transformer_jax.__main__ import main
from transformer_jax.commands.config_command import explained
from transformer_jax.commands.flags import parse, resolve_config
from transformer_jax.commands.registry import load_command
from transformer_jax.config import ConfigError, DataConfig, DecodingConfig, MeshConfig, setting
from transformer_jax.config.conversion import apply_overrides, from_dict, from_json, to_json
from transformer_jax.config.hyperparameters import hyperparameters_of
from transformer_jax.config.model import RnnConfig, TransformerConfig
from transformer_jax.config.run_settings import load_run_config
from transformer_jax.data.corpora import open_corpus
from transformer_jax.layers.embedding import Embedding
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import init_params
from transformer_jax.precision import FLOAT32
from transformer_jax.registry.plugins import register, registered
from transformer_jax.registry.python_files import call_in_file, load_plugin
from transformer_jax.runs.trackers import Trackers
from transformer_jax.sequence_types import Batch, DecodeCache, Tokens
from transformer_jax.tasks.task import objective_of, task_class, task_that
from transformer_jax.tasks.texts import ReadsTexts
from transformer_jax.tasks.trained_run import HasEnsembles, opened_class
from transformer_jax.tasks.translation import translator
from transformer_jax.tools.conform.model_properties import step_equals_full_pass
from transformer_jax.tools.conform.trials import ROWS, Sentences, Trial, sentences, trial_config
from transformer_jax.tools.preflight.compiled_program import HasBatchShapes
from transformer_jax.tools.preflight.decoding import Decodes
from transformer_jax.tools.study.translation_comparison import ScoresPairs
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows, state_shardings
from transformer_jax.training.update import Update

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(file for file in (ROOT / "examples").glob("*.py") if file.stem != "own_loop")
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 4}
SOURCE = Tokens.from_ids(np.array([[5, 6, 7, 2, 0, 0], [8, 9, 10, 11, 12, 2]], np.int32))
TARGET = Tokens.from_ids(np.array([[5, 6, 2, 0, 0], [8, 9, 10, 11, 2]], np.int32))


@pytest.fixture(scope="module", autouse=True)
def plugins():
    for file in EXAMPLES:
        load_plugin(str(file))


@pytest.mark.parametrize("attention", ["grouped_query", pytest.param("multi_head", marks=pytest.mark.slow)])
def test_qk_clip_lowers_the_largest_score_of_heads_to_the_threshold_and_keeps_others(attention):
    model = {"num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 4, "dropout": 0.0, "embedding_dropout": 0.0}
    values = {
        "task": "language_model",
        "tokenizer": {"kind": "byte", "vocabulary_size": 64},
        "model": model | {"attention": attention},
        "optimizer": {"name": "sgd", "learning_rate": 1e-9, "after_update": "qk_clip"},
    }
    config, mesh = from_dict(values), make_mesh(MeshConfig(data=1), jax.devices()[:1])
    objective = objective_of(config, mesh)
    params = objective.init_params(jax.random.key(0))
    part = registered("after_update")["qk_clip"]

    def largest(params):
        settings = hyperparameters_of(config)
        watched = from_dict(values | {"training": {"watch": "largest_logit"}})
        sums = objective_of(watched, mesh).loss(params, SOURCE, jax.random.key(1), settings)
        return np.asarray(sums.statistics["qk_clip"]["decoder_layers_0/self_attention"][0]), sums.statistics

    before, statistics = largest(params)
    threshold = float(np.sort(before)[1:3].mean())
    settings = replace(config.parts["qk_clip"], threshold=threshold)
    after, _ = largest(part(settings).after_update(params, statistics["qk_clip"]))
    np.testing.assert_allclose(after, np.minimum(before, threshold), rtol=1e-5)
    assert float(statistics["largest_logit"]["decoder_layers_0/self_attention"][0]) == before.max() > threshold


@pytest.mark.slow
def test_an_attention_steps_as_it_runs_and_sees_the_order_of_words():
    trial = Trial(trial_config("translation", {"model": {"attention": "kerple", "positions": "none"}}))
    trial.params = jax.jit(partial(init_params, trial.model))(jax.random.key(0))
    step_equals_full_pass(trial, 6)
    # Parameters that no rule of sharding knows are replicated.
    placed = state_shardings(trial.params, make_mesh(MeshConfig(data=2, fsdp=2, tensor=2)))
    attention = placed["decoder_layers_0"]["self_attention"]
    assert attention["changes_kerple"]["rates"].is_fully_replicated and not attention["query"].is_fully_replicated
    # Without positions in the embeddings, words that change places in the encoder are seen only by
    # scores that know where.
    source, target = sentences(ROWS, 6)
    swapped = Sentences(source[:, [1, 0, *range(2, 6)]], target)
    assert np.abs(trial.logits(swapped.batch) - trial.logits(Sentences(source, target).batch)).max() > 1e-4


def test_a_whole_attention_with_settings_and_a_site_decodes():
    names = {"__name__": __name__}
    exec(
        re.search(
            "```python\n(from typing import Any\n[^`]*class Mine.*?)```",
            (ROOT / "docs/extending_models.md").read_text(),
            re.DOTALL,
        )[1],
        names,
    )

    @dataclass(frozen=True)
    class Settings:
        factor: float = setting(1.0, "Factor on the queries.")

    @register("attention", "whole", settings=Settings)
    class Whole(names["Mine"]):
        def project_queries(self, queries):
            return super().project_queries(queries) * self.settings.factor**self.site.depth

    values = ({"model": {"attention": "whole"}, "parts": {"whole": {"factor": factor}}} for factor in (3.0, 1.0))
    trials = [Trial(trial_config("language_model", value)) for value in values]
    step_equals_full_pass(trials[0], 5)
    tripled, plain = (trial.logits(sentences(ROWS, 5).batch) for trial in trials)
    assert np.abs(tripled - plain).max() > 1e-3


def test_a_search_ends_later(monkeypatch):
    monkeypatch.setattr(translator, "SegmentedSearch", lambda init, make_step, search, *others: search)
    log_probs = jnp.log(jnp.array([0.0, 0.0, 0.5, 0.2, 0.3]))
    mesh, result = make_mesh(MeshConfig(data=1), jax.devices()[:1]), {}
    for name in ("beam", "late_ending"):
        search = translator.search_for(lambda: None, DecodingConfig(search=name, beam_width=1), mesh, 1)
        state = search.start(DecodeCache((), ()), jnp.array([4]), 4, None)
        for _ in range(4):
            state = search.choose(state, jnp.broadcast_to(log_probs, (1, 1, 5)))
        result[name] = search.results(state).ids[0, 0].tolist()
    assert result == {"beam": [2, 0, 0, 0], "late_ending": [4, 4, 4, 2]}


def test_a_source_of_pairs(tmp_path):
    # Excel begins UTF-8 with a byte order mark.
    (tmp_path / "train.csv").write_text('\ufeffen,de\n"a, b",x\nc,y\n', encoding="utf-8")
    corpus = open_corpus(DataConfig(source="csv", directory=str(tmp_path)), 0)
    assert list(corpus.pairs("train")) == [("a, b", "x"), ("c", "y")]


@pytest.mark.slow
def test_parts_of_a_layer_and_an_optimizer_learn_a_batch():
    parts = {"norm": "scale_norm", "normalization": "layer_scale", "feed_forward": "bilinear"}
    optimizer = {"name": "signum", "schedule": "steps", "learning_rate": 0.01, "warmup_updates": 1}
    model = {**SMALL, **parts, "initialization": "small", "tying": "none"}
    config = from_dict({"model": model, "optimizer": optimizer})
    mesh = make_mesh(MeshConfig(data=1), jax.devices()[:1])
    objective = objective_of(config, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    state, batch, losses = update.initial_state(0), put_rows(Batch(SOURCE, TARGET), mesh), []
    for _ in range(4):
        state, metrics = update.jitted(state, batch, put_hyperparameters(hyperparameters_of(config), mesh))
        losses.append(float(metrics.sums.loss))
    assert losses[3] < losses[0]


def test_an_output_layer_projects_hidden_states_and_scales_logits():
    make_projection = registered("projection")["tempered"]
    layer = make_projection(None, TransformerConfig(**SMALL), None, embedding=Embedding(9, 16), precision=FLOAT32)
    hidden = jax.random.normal(jax.random.key(0), (2, 3, 16))
    params = layer.init(jax.random.key(1), hidden, method="logits")["params"] | {"sharpness": jnp.full((), 2.0)}
    logits = layer.apply({"params": params}, hidden, method="logits")
    expected = 2 * hidden @ params["readout_kernel"] @ params["embedding"]["table"].T
    np.testing.assert_allclose(logits, expected, atol=1e-5)


LABELED = {"task": "classification", "data": {"generated_pairs": 40}, "model": {**SMALL, "tying": "none"}}
LABELED |= {"tokenizer": {"kind": "word", "joint": False}}


@pytest.mark.slow
def test_a_task_learns_and_counts_only_labels(tmp_path):
    values = LABELED | {"data": {**LABELED["data"], "cache_directory": str(tmp_path)}}
    config, mesh = from_dict(values), make_mesh(MeshConfig(data=2), jax.devices()[:2])
    task = task_class(config.task)(config, task_class(config.task).new_tokenizers(config), mesh)
    batch = Batch(SOURCE, TARGET)
    params = jax.jit(task.objective.init_params)(jax.random.key(0))
    loss = jax.jit(lambda params, batch: task.objective.unsmoothed_loss(params, batch).loss)
    others = Tokens.from_ids(np.array([[5, 9, 2, 0, 0], [8, 4, 4, 4, 2]], np.int32))
    assert float(loss(params, batch)) == float(loss(params, Batch(SOURCE, others))), "only the first word is the label"
    gradient = jax.jit(jax.grad(lambda params: loss(params, batch)))(params)
    better = jax.tree.map(lambda value, slope: value - 0.1 * slope, params, gradient)
    assert float(loss(better, batch)) < float(loss(params, batch)) - 0.01
    result = task.validate(params, "validation", limit=8)
    assert result.num_examples == 8 and result.metrics["accuracy"] in [count / 8 for count in range(9)]


def test_a_task_has_settings_and_checks_of_its_own(tmp_path):
    config = from_dict(LABELED)
    assert (config.selection.key, config.selection.direction) == ("validation/accuracy", "maximize")
    assert from_json(to_json(config)) == config
    with pytest.raises(ConfigError, match=r"tokenizer\.kind: labels are words"):
        from_dict(LABELED | {"tokenizer": {"kind": "bpe", "joint": False}})
    with pytest.raises(ConfigError, match=r"model\.kind: 'rnn' is not one of transformer"):
        from_dict(LABELED | {"model": {"kind": "rnn"}})
    for protocol in (ReadsTexts, HasEnsembles, ScoresPairs, Decodes):
        with pytest.raises(ConfigError, match="^task: no; this takes task=translation"):
            task_that(protocol, config, "task", "no")
    assert task_that(HasBatchShapes, config, "task", "no") is task_class("classification")
    assert opened_class("classification", only_decodes=True) is task_class("classification")
    (tmp_path / "config.json").write_text(json.dumps(to_json(config)).replace("classification", "ranking"))
    with pytest.raises(ConfigError, match=r"task: 'ranking' is not .*classification.*; .* --plugin=FILE\.py"):
        load_run_config(tmp_path)
    with pytest.raises(ConfigError, match=r'may add it: transformer_jax\.load_plugin\("FILE\.py"\)'):
        transformer_jax.load(tmp_path)


@pytest.mark.slow
def test_a_task_trains_is_evaluated_and_reported(tmp_path, capsys):
    run, plugin = str(tmp_path / "run"), f"--plugin={ROOT / 'examples' / 'classification.py'}"
    settings = {"task": "classification", "tokenizer.kind": "word", "tokenizer.joint": False, "model.tying": "none"}
    settings |= {"data.generated_pairs": 400, "training.num_updates": 8, "training.evaluate_every": 4, "mesh.data": 8}
    settings |= {"optimizer.warmup_updates": 2}
    flags = [f"--config.{key}={value}" for key, value in settings.items()]
    assert main(["train", plugin, "--config=quickstart", run, *flags]) == 0
    assert main(["evaluate", plugin, run]) == 0
    assert main(["report", plugin, run, f"--output={tmp_path / 'report'}"]) == 0
    assert re.search(r"accuracy +0\.\d{4}", capsys.readouterr().out)
    assert main(["figure", "architecture", plugin, f"--config={run}", f"--output={tmp_path / 'model.svg'}"]) == 2
    assert main(["export", plugin, run, "--format=safetensors", f"--output={tmp_path / 'exported'}"]) == 2
    refusals = capsys.readouterr().err
    assert "task=classification cannot be drawn" in refusals
    assert "is a run of task=classification; give one of translation or language_model" in refusals
    assert transformer_jax.load(run).evaluate("validation", limit=8).num_examples == 8
    (start,) = json.loads((tmp_path / "run" / "run.json").read_text())
    assert str(ROOT / "examples" / "classification.py") in start["plugins"]


def test_a_tracker(tmp_path):
    config = from_dict({"training": {"trackers": "jsonl,csv"}})
    (tracker,) = Trackers(tmp_path, config, 0).trackers
    tracker.write(3, {"train/loss": 1.5})
    tracker.close()
    assert (tmp_path / "metrics.csv").read_text() == "3,train/loss,1.5\n"
    # A resumed run repeats the updates after its checkpoint.
    (tracker,) = Trackers(tmp_path, config, 2).trackers
    tracker.write(3, {"train/loss": 1.25})
    tracker.close()
    assert (tmp_path / "metrics.csv").read_text() == "3,train/loss,1.25\n"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["mlflow", "trackio"])
def test_a_tracker_of_another_library_continues_under_one_name(library, monkeypatch, tmp_path):
    pytest.importorskip(library)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "db"))
    (tmp_path / "run").mkdir()
    names = set()
    for step in (1, 2):
        tracker = registered("tracker")[library](tmp_path / "run", from_dict({}), step - 1)
        tracker.write(step, {"train/loss": 1.0 / step})
        tracker.sync()
        tracker.close()
        names.add((tmp_path / "run" / "trackers.json").read_text())
    assert len(names) == 1
    if library == "mlflow":
        rows = sqlite3.connect(tmp_path / "mlruns.db").execute("select key, step from metrics order by step")
        assert rows.fetchall() == [("train/loss", 1), ("train/loss", 2)]


def test_choices_and_their_explanation_know_what_was_added(capsys):
    assert "kerple" in explained("model.attention").by("values")[0][0]
    with pytest.raises(ConfigError, match=r"'kerpl' is not one of .*kerple.*; a plugin may add it: --plugin=FILE\.py"):
        TransformerConfig(attention="kerpl")
    with pytest.raises(ConfigError, match="'attentions' is not one of attention, "):
        register("attentions", "a")
    assert main(["config", "--plugin=nowhere.py", "--config=quickstart"]) == 2
    assert "--plugin: nowhere.py is not a file" in capsys.readouterr().err
    file = ROOT / "examples" / "kerple.py"
    assert main(["config", f"--plugin={file}", "--config=quickstart", "--config.model.attention=kerple"]) == 0
    assert "model.attention          = kerple" in capsys.readouterr().out


MISTAKES = """
import transformer_jax
from jax.tree_util import Partial
from transformer_jax.layers.modified_attention import AttentionChange
def narrow(scores, at):
    return scores[..., :1]
@transformer_jax.register("attention", "narrow")
class Narrow(AttentionChange):
    def score_mod(self):
        return Partial(narrow)
@transformer_jax.register("attention", "untidy")
class Untidy(AttentionChange):
    def queries(self, query, positions):
        return query + positions
"""


def test_a_mistake_in_a_plugin_is_one_line_that_names_its_line_and_the_shapes(tmp_path, capsys, monkeypatch):
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    load_plugin(str(tmp_path / "mistakes.py"))

    def build(attention):
        model = build_model(TransformerConfig(**SMALL, attention=attention), 19, 19)
        jax.eval_shape(partial(model.init, train=False), jax.random.key(0), SOURCE, TARGET)

    with pytest.raises(ConfigError, match=r"mistakes.py, line 5: narrow returned \[2, 4, 6, 1\], expected .*6, 6\]"):
        build("narrow")
    monkeypatch.setattr("transformer_jax.__main__.run_command", lambda arguments: build(arguments[0]))
    assert main(["untidy"]) == 2
    assert capsys.readouterr().err.startswith(f"transformer-jax: {tmp_path / 'mistakes.py'}, line 14: ValueError: ")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_command_that_an_example_gives_states_possible_settings(file):
    words = shlex.split(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))).partition("transformer-jax ")[2])
    assert words[:2] == ["train", f"--plugin=examples/{file.name}"]
    resolve_config(parse(load_command("train").flags, words[2:]))


BLOCK = re.compile(r'^```python title="([^"]*)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_pages_name_every_example_and_show_files_whole_and_the_sweep_has_a_grid_of_a_setting_of_its_part(tmp_path):
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("extending*.md")))
    assert [file.name for file in EXAMPLES if f"examples/{file.name}" not in pages] == []
    blocks = dict(BLOCK.findall(pages))
    (tmp_path / "sweep.py").write_text(blocks.pop("kerple_sweep.py"))
    stale = [name for name, code in blocks.items() if (ROOT / name).read_text(encoding="utf-8") != code]
    assert stale == [], "copy them into docs/extending*.md"
    sweep = call_in_file(tmp_path / "sweep.py", "get_sweep", "", "a sweep file")
    for rate in sweep.space["parts.kerple.initial_rate"].values:
        config = apply_overrides({}, [*sweep.overrides.items(), ("parts.kerple.initial_rate", str(rate))])
        assert from_dict(config).parts["kerple"].initial_rate == rate


@pytest.mark.slow
def test_an_attention_of_recurrent_models_is_read_and_learned():
    sizes = {"d_embedding": 8, "d_hidden": 8, "d_attention": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = build_model(RnnConfig(**sizes, attention="cosine"), 19, 19)
    # Encoder states of a row of padding are zero.
    source, target = (Tokens(*(jnp.pad(item, ((0, 1), (0, 0))) for item in side)) for side in (SOURCE, TARGET))
    variables = jax.jit(partial(model.init, train=False))(jax.random.key(0), source, target)
    total = jax.jit(lambda params: (model.apply({"params": params}, source, target, train=False) ** 2).sum())
    gradients = jax.grad(total)(variables["params"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    (sharpness,) = (g for path, g in jax.tree_util.tree_leaves_with_path(gradients) if "sharpness" in str(path))
    assert abs(float(sharpness)) > 1e-6
    choices = explained("model.attention").by("values")
    assert any("cosine" in names and "location_sensitive" in names for names, _ in choices)
