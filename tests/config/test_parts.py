"""Settings of parts: selected, completed, checked, saved, explained and swept like every other."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from hashlib import sha256

import pytest
from process_environment import process_environment

from transformer_jax.__main__ import main
from transformer_jax.commands.config_command import explained
from transformer_jax.config import ConfigError, difference, flatten, from_dict, hyperparameters_of, load_run_config
from transformer_jax.config.checks import setting
from transformer_jax.config.conversion import from_json, to_json
from transformer_jax.config.experiment import may_change
from transformer_jax.config.hyperparameters import parts_with
from transformer_jax.config.run_settings import config_for_use, resolve
from transformer_jax.config.tasks import TASKS
from transformer_jax.registry.index import own_parts
from transformer_jax.registry.plugins import register
from transformer_jax.registry.python_files import load_plugin
from transformer_jax.run_directory.layout import (
    TRUST_CONFIG,
    RunDirectory,
    changed_plugins,
    require_plugins,
    write_json,
)
from transformer_jax.tasks.saved_evaluations import evaluation_stem
from transformer_jax.tools.study.sweeps import Choice, Sweep, Uniform, check

MUON = {"optimizer": {"name": "muon"}, "parts": {"muon": {"beta": 0.5}}}
T5, WSD = {"model": {"positions": "t5"}}, {"optimizer": {"schedule": "wsd"}}


def test_selected_parts_are_complete_and_come_back_from_json():
    values = MUON | {"model": {"feed_forward": "swiglu"}}
    config = from_dict(values)
    found = flatten(config)
    assert (found["parts.muon.beta"], found["parts.muon.iterations"]) == (0.5, 5), "defaults are filled in"
    assert list(config.parts) == ["muon", "swiglu"]
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    assert hash(config) == hash(from_dict(values))
    assert difference(config, replace(config, parts={})) == [("parts.muon.beta", 0.5, 0.95)]
    assert "parts" not in to_json(from_dict({}))["config"], "runs without parts are saved as before"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"parts": {"muom": {}}}, "parts.muom: no part of this name has settings; did you mean parts.muon?"),
        ({"parts": {"muon": {}}}, "parts.muon: no setting selects this part; set optimizer.name=muon, or leave its"),
        (MUON | {"parts": {"muon": {"bet": 1}}}, "parts.muon.bet: unknown key; did you mean parts.muon.beta?"),
        (MUON | {"parts": {"muon": {"beta": 1.5}}}, "parts.muon.beta: 1.5 must be below 1"),
        (MUON | {"parts": {"muon": 3}}, "parts.muon: expected a block of settings with beta, iterations, rms, found 3"),
        (T5 | {"parts": {"t5": {"max_distance": 16}}}, "parts.t5.max_distance: 16 must be more than 16, half of the"),
    ],
)
def test_a_wrong_part_is_refused_with_its_remedy(values, message):
    with pytest.raises(ConfigError) as raised:
        from_dict(values)
    assert str(raised.value).startswith(message)


def test_a_run_as_a_recipe_drops_the_parts_that_overrides_no_longer_select(tmp_path):
    write_json(tmp_path / "config.json", to_json(from_dict(MUON)))
    assert resolve(str(tmp_path)).parts["muon"].beta == 0.5
    assert not resolve(str(tmp_path), [("optimizer.name", "adam")]).parts
    with pytest.raises(ConfigError, match=r"parts\.muon: no setting selects"):
        resolve(str(tmp_path), [("optimizer.name", "adam"), ("parts.muon.beta", "0.9")])


def test_parts_are_swept_overridden_and_explained(capsys):
    sweep = Sweep("quickstart", {"optimizer.name": "muon"}, space={"parts.muon.beta": Choice(0.8, 0.9)})
    check(sweep)
    assert [sweep.settings(point).parts["muon"].beta for point in sweep.points()] == [0.8, 0.9]
    with pytest.raises(ConfigError, match=r"parts\.muon\.beta: 1\.5 must be below 1"):
        check(replace(sweep, sampler="random", trials=2, space={"parts.muon.beta": Uniform(0.5, 1.5)}))
    arguments = ["--config=quickstart", "--config.optimizer.name=muon", "--config.parts.muon.beta", ".7"]
    assert main(["config", *arguments]) == 0
    assert "parts.muon.beta       = 0.7" in capsys.readouterr().out
    assert "values: at least 0, below 1, or a schedule\n" in explained("parts.muon.beta").text()
    assert "  rmsnorm: Division by the root mean square" in explained("model.norm").text()


def test_traced_settings_of_parts_are_hyperparameters():
    config = from_dict(MUON)
    found = hyperparameters_of(config)
    assert found.parts == {"muon": {"beta": 0.5, "rms": 0.2}} and hyperparameters_of(from_dict({})).parts == {}
    traced = parts_with(config, found._replace(parts={"muon": {"beta": "traced"}}))
    assert (traced["muon"].beta, config.parts["muon"].beta) == ("traced", 0.5)


@dataclass(frozen=True)
class Settings:
    size: int = setting(1, "Size.")
    verbose: bool = setting(False, "Says more.", changeable=True)


def test_a_resumed_run_may_change_what_its_part_declares_as_changeable():
    register("schedule", "mine", settings=Settings)(lambda settings, hyperparameters, d_model: None)
    config = from_dict({"optimizer": {"schedule": "mine"}})
    assert may_change("parts.mine.verbose", config, config)
    for key in ("parts.mine.size", "parts.other.size", "training.num_updates"):
        assert not may_change(key, config, config)
    with pytest.raises(ConfigError, match=r"parts\.mine are already the settings of schedule 'mine'; use another name"):
        register("norm", "mine", settings=Settings)
    # The kit has not been imported by then in a new process.
    program = "import transformer_jax; transformer_jax.register('attention', 'rope', settings=object)"
    result = subprocess.run([sys.executable, "-c", program], env=process_environment(), capture_output=True, text=True)
    assert "parts.rope are already the settings of positions 'rope'; use another name" in result.stderr
    with pytest.raises(ConfigError, match="tokenizer 'mine' would not get its settings"):
        register("tokenizer", "mine", settings=Settings)


@pytest.mark.parametrize(
    ("kind", "name", "made", "message"),
    [
        ("norm", "rmsnorm", object, f"norm 'rmsnorm' is in {own_parts()['norm', 'rmsnorm'].module}; use another name"),
        ("task", "translation", TASKS["translation"], r"task 'translation' is in transformer_jax\.[\w.]+; use"),
        ("mixer", "attention", object, "mixer 'attention' is taken by the core; use another name"),
        ("loss_term", "nll", object, "the log has another train/nll"),
        ("initialization", "old", lambda model: 1, r"takes \(model\); the arguments are \(settings, model, site, path"),
        ("optimizer", "more", lambda settings, hyperparameters: [], r"the arguments are \(hyperparameters\)$"),
    ],
)
def test_a_plugin_with_a_taken_name_or_other_arguments_is_refused(kind, name, made, message):
    with pytest.raises(ConfigError, match=message):
        register(kind, name)(made)


def test_a_run_is_used_and_resumed_with_other_searches_and_metrics_and_their_settings(tmp_path):
    register("search", "own_search", settings=Settings)(lambda settings, rules: None)
    register("metric", "own_metric", settings=Settings)(lambda settings, *texts: None)
    saved = from_dict({"decoding": {"search": "own_search"}})
    write_json(tmp_path / "config.json", to_json(saved))
    for override, parts in (("decoding.search=beam", {}), ("parts.own_search.size=3", {"own_search": Settings(3)})):
        assert config_for_use(tmp_path, [tuple(override.split("="))]).parts == parts
    scored = config_for_use(tmp_path, [("evaluation.metrics", "own_metric"), ("parts.own_metric.size", "2")])
    assert evaluation_stem("a", 1, 1, saved, scored).endswith("-own_metric.size=2-own_metric.verbose=False")
    assert may_change("parts.own_metric.size", saved, scored) and may_change("parts.own_metric.size", scored, saved)
    assert not may_change("parts.own_search.size", saved, scored)
    validated = {"training": {"validation_metrics": "own_metric"}, "parts": {"own_metric": {"size": 2}}}
    assert from_dict(validated).parts["own_metric"].size == 2


def test_a_changed_plugin_is_refused_at_resume(tmp_path, monkeypatch):
    monkeypatch.setenv(TRUST_CONFIG, "")
    file, run = tmp_path / "mine.py", RunDirectory(tmp_path / "run")
    run.path.mkdir()

    def loaded(path, text):
        path.write_text(text)
        load_plugin(str(path))

    loaded(file, "SIZE = 1\n")
    run.write_run([], 0, 0)
    require_plugins(run.path)
    loaded(file, "SIZE = 2\n")
    assert changed_plugins(run.path) == [str(file)]
    with pytest.raises(ConfigError, match=r"--plugin: .*mine\.py changed since the run .*--trust_config"):
        require_plugins(run.path)
    with monkeypatch.context() as patch:
        patch.setenv(TRUST_CONFIG, "1")
        require_plugins(run.path)
    (tmp_path / "other").mkdir()
    loaded(tmp_path / "other" / "mine.py", "SIZE = 3\n")
    run.write_run([], 0, 0)
    require_plugins(run.path)
    texts = {kept.name: kept.read_text() for kept in run.plugins.iterdir()}
    digests = {text: sha256(text.encode()).hexdigest()[:8] for text in ("SIZE = 2\n", "SIZE = 3\n")}
    others = {f"mine-{digest}.py": text for text, digest in digests.items()}
    assert texts == {"mine.py": "SIZE = 1\n", **others}, "as they were loaded"
    # Runs of earlier versions have no digests.
    write_json(run.run_record, [{"plugins": [str(file)]}])
    assert changed_plugins(run.path) == []
    write_json(run.run_record, [{"plugins": {str(file): ["no digest"]}}])
    assert str(file) in changed_plugins(run.path)


def test_a_file_of_another_name_is_compared_where_it_registers_a_selected_part(tmp_path):
    text = "from transformer_jax.registry.plugins import register\nregister({!r}, {!r})(lambda rules: {})\n"
    run = RunDirectory(tmp_path / "run")

    def loaded(name, *parts):
        (tmp_path / name).write_text(text.format(*parts))
        load_plugin(str(tmp_path / name))

    loaded("first.py", "search", "renamed_search", 1)
    write_json(run.config, to_json(from_dict({"decoding": {"search": "renamed_search"}})))
    run.write_run([], 0, 0)
    loaded("second.py", "search", "renamed_search", 1)
    assert changed_plugins(run.path) == [], "the same text"
    loaded("third.py", "search", "unselected_search", 2)
    assert changed_plugins(run.path) == []
    loaded("second.py", "search", "renamed_search", 2)
    (changed,) = changed_plugins(run.path)
    assert changed.startswith(f"{tmp_path / 'second.py'} (which registers renamed_search")


def test_a_run_whose_plugin_is_not_loaded_names_it(tmp_path):
    write_json(tmp_path / "run.json", [{"plugins": {"/there/not mine.py": "digest"}}])
    saved = to_json(from_dict({}))
    saved["config"]["optimizer"]["schedule"] = "of_the_run"
    write_json(tmp_path / "config.json", saved)
    (tmp_path / "plugins").mkdir()
    told = r"'of_the_run' is not one of .*; the run had --plugin='/there/not mine\.py' \(their text is in .*/plugins\)"
    with pytest.raises(ConfigError, match=told):
        load_run_config(tmp_path)
