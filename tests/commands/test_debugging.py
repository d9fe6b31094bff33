"""The tools of docs/debugging.md, in the attention of a plugin, by the command line."""

import sys
import traceback

import jax
import pytest
from run_settings import tiny_config
from run_steps import on_devices, write_recipe

from transformer_jax.__main__ import main

PLUGIN = """
import os
import jax
import jax.numpy as jnp
import transformer_jax
from jax.tree_util import Partial
from transformer_jax.layers.modified_attention import AttentionChange

def looked_into(scores, at):
    breakpoint()
    jax.debug.print("smallest score {score}", score=scores.min())
    return jnp.log(-jnp.abs(scores) - 1.0) if "MAKE_NAN" in os.environ else scores

@transformer_jax.register("attention", "looked_into")
class LookedInto(AttentionChange):
    def score_mod(self):
        return Partial(looked_into)
"""


@pytest.mark.slow
def test_a_plugin_is_looked_into_while_it_trains_and_decodes(tmp_path, monkeypatch, capfd):
    stacks = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stacks.append([each.name for each in traceback.extract_stack()]))
    (tmp_path / "plugin.py").write_text(PLUGIN)
    recipe = write_recipe(tiny_config(tmp_path / "cache", num_updates=3, evaluate_every=0), tmp_path / "run")
    train = ["train", f"--plugin={tmp_path}/plugin.py", f"--config={recipe}", "--config.model.attention=looked_into"]
    with on_devices(1):
        assert main([*train, "--profile_steps=2:2", f"--workdir={tmp_path}/run"]) == 0
    assert any("run_training" in names and "training_loss" in names for names in stacks)
    assert "smallest score " in capfd.readouterr().out
    assert list((tmp_path / "run" / "profile").rglob("*.xplane.pb"))

    stacks.clear()
    (tmp_path / "lines").write_text("a b\n")
    monkeypatch.setenv("MAKE_NAN", "1")
    arguments = ["translate", f"--plugin={tmp_path}/plugin.py", f"--workdir={tmp_path}/run", "--checkpoint=last"]
    with jax.debug_nans(True):
        assert main([*arguments, f"--source={tmp_path}/lines"]) == 2
    assert any("decode_lines" in names and "encode" in names for names in stacks)
    assert "plugin.py, line 12: FloatingPointError: invalid value (nan) encountered in log" in capfd.readouterr().err
