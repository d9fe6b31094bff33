"""Runs of a few seconds that begin with the parameters of another."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from run_settings import tiny_config, tiny_settings
from run_steps import initial_state, read_parameters, train, write_untrained

from transformer_jax.config import ConfigError, ExperimentConfig, InitConfig, from_dict, to_dict, to_json
from transformer_jax.run_directory.layout import RunDirectory, write_json
from transformer_jax.runs.initial_state import OF_A_VOCABULARY
from transformer_jax.runs.train_run import require_same_run, settings_to_train
from transformer_jax.training.parameters import named_leaves

FREEZE = "^encoder_|embedding"


@pytest.fixture(scope="module")
def source(cache, tmp_path_factory) -> Path:
    """The folder of a run with a checkpoint; that it was never trained makes no difference to
    whoever begins with it."""
    return write_untrained(replace(tiny_config(cache), seed=1), tmp_path_factory.mktemp("source") / "run")


def tuned(
    cache: Path, source: Path | str, freeze: str = FREEZE, init: dict | None = None, **blocks: dict
) -> ExperimentConfig:
    """Other data, of which other tokenizers would be trained, if any were."""
    settings = tiny_settings(cache, num_updates=3)
    settings["data"] |= {"source": "reverse"}
    settings["init"] = {"run": str(source), "checkpoint": "last"} | (init or {})
    settings["optimizer"]["freeze"] = freeze
    for block, values in blocks.items():
        settings[block] = settings[block] | values
    return from_dict(settings)


@pytest.mark.slow
def test_what_is_frozen_stays_as_in_the_other_run_and_a_resumed_run_needs_it_no_more(cache, source, tmp_path, capfd):
    other, run = tmp_path / "other", tmp_path / "run"
    shutil.copytree(source, other)
    config = tuned(cache, other)
    assert train(config, run).reason == "finished"
    told = capfd.readouterr().err
    assert f"parameters of {other}, checkpoint 0: 31 arrays taken" in told
    assert re.search(r"saving done \(restored: BLEU \d+\.\d\d \(8 of 500 sentences, beam 2\), chrF ", told)
    assert re.search(r"update 3: validation BLEU \d+\.\d\d \(8 of 500 sentences, beam 2\), chrF ", told)
    assert told.count("tok:13a") == 1, "the signature stands once"
    assert "optimizer.freeze='^encoder_|embedding' holds 13 of 31 arrays" in told
    assert json.loads((run / "run.json").read_text())[0]["initial_parameters"]["step"] == 0
    shutil.rmtree(other)
    for init in (InitConfig(), replace(config.init, run=str(tmp_path / "moved"))):
        resumed = replace(config, init=init)
        assert settings_to_train(to_dict(resumed), (), str(run))[0] == config
    with pytest.raises(ConfigError, match="init.leave_out: the run has '', this command 'embedding'"):
        require_same_run(replace(config, init=replace(config.init, leave_out="embedding")), str(run))
    assert train(config, run).step == 3
    before = read_parameters(source, "last")
    after = read_parameters(run, "3")
    is_frozen = {name: name.startswith("encoder_") or "embedding" in name for name in before}
    assert {name: np.array_equal(before[name], after[name]) for name in before} == is_frozen
    for file in (run / "tokenizer").iterdir():
        assert file.read_bytes() == (source / "tokenizer" / file.name).read_bytes()


def test_what_is_taken_lies_where_it_belongs_and_the_rest_is_drawn_as_in_any_new_run(cache, source, tmp_path):
    """On a mesh of its own, with scanned layers, though the other run had neither."""
    mesh = {"data": 2, "fsdp": 2, "tensor": 2}
    model = {"num_decoder_layers": 2, "scan_layers": True}
    config = tuned(cache, source, freeze="embedding", init={"leave_out": "^encoder_"}, mesh=mesh, model=model)
    state, taken, _, update = initial_state(config, tmp_path / "run", devices=8)
    drawn = jax.device_get(update.initial_state(config.seed))
    before = read_parameters(source, "last")
    for name, leaf in named_leaves(state.params).items():
        is_drawn = name.startswith(("encoder_", "decoder_layers_1"))
        np.testing.assert_array_equal(leaf, named_leaves(drawn.params)[name] if is_drawn else before[name])
    wanted = jax.tree.map(lambda shape: shape.sharding, update.state_shapes)
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == wanted
    assert int(state.step) == 0
    told = taken.to_json()
    assert {name.partition("/")[0] for name in told["missing"]} == {"decoder_layers_1"}
    assert {name.partition("/")[0] for name in told["left_out"]} == {"encoder_layers_0"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"d_ff": 64}}, r"feed_forward/wide_kernel: \(16, 32\) in the checkpoint, \(16, 64\) here"),
        (
            {"tokenizer": {"kind": "character"}},
            "tokenizer.kind: 'character', but the tokenizers are adopted from .*'word'",
        ),
        ({"init": {"tokenizer": "new"}}, "source_embedding/table would be taken from a run with other tokenizers"),
        ({"init": {"checkpoint": "5"}}, r"no checkpoint '5'; kept are 0"),
        ({"freeze": "decoder_layers_9"}, "optimizer.freeze: 'decoder_layers_9' is found in the path of no parameter"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_written(cache, source, tmp_path, changes, message):
    config = tuned(cache, source, **changes)
    with pytest.raises(ValueError, match=message):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_new_tokenizers_are_trained_where_no_embedding_is_taken(cache, source, tmp_path):
    config = tuned(cache, source, init={"tokenizer": "new", "leave_out": "table$"}, data={"source": "grammar"})
    fingerprints = [initial_state(each, tmp_path / "run")[2].identity for each in (config, tuned(cache, source))]
    assert fingerprints[0]["source tokenizer"] != fingerprints[1]["source tokenizer"]


def test_every_parameter_of_a_vocabulary_is_known_as_one(cache, tmp_path):
    config = from_dict(tiny_settings(cache))
    config = replace(config, model=replace(config.model, logits_bias=True, tying="none"))
    state, _, task, _ = initial_state(config, tmp_path / "run")
    sizes = {each.vocabulary_size for each in (task.tokenizers.source, task.tokenizers.target)}
    found = {name for name, leaf in named_leaves(state.params).items() if sizes & set(leaf.shape)}
    assert "projection/logits_bias" in found and all(map(OF_A_VOCABULARY.search, found)), found


def test_a_run_that_drew_its_parameters_does_not_go_on_with_those_of_another(cache, tmp_path):
    config = tuned(cache, tmp_path / "other")
    (tmp_path / "checkpoints" / "3" / "rest").mkdir(parents=True)
    write_json(RunDirectory(tmp_path).config, to_json(replace(config, init=InitConfig())))
    with pytest.raises(ConfigError, match="init.run: the run has '', this command"):
        require_same_run(config, str(tmp_path))
    with pytest.raises(ConfigError, match=r"init.run: .*other does not exist"):
        require_same_run(config, str(tmp_path / "new"))


def test_the_peak_rate_of_a_run_that_is_fine_tuned_is_told_unless_one_is_stated(source, tmp_path, capfd):
    init = ("init.run", str(source))
    settings_to_train(str(source), [init], str(tmp_path / "new"))
    assert (
        f"optimizer.learning_rate=0.01 is the peak of {source}; fine-tuning usually takes less"
        in capfd.readouterr().err
    )
    for overrides in ([init, ("optimizer.learning_rate", "0.001")], []):
        settings_to_train(str(source), overrides, str(tmp_path / "new"))
        assert "is the peak of" not in capfd.readouterr().err
