"""The tools of docs/debugging.md, in the attention of a plugin, by the command line."""

import re
import sys
import traceback
from pathlib import Path

import jax
import pytest
from run_settings import tiny_config
from run_steps import on_devices, write_recipe

from transformer_jax.__main__ import main

ROOT = Path(__file__).parents[2]
FRAME = re.compile(r"^  (transformer_jax/\S+\.py) (\w+)\(\)$", re.MULTILINE)

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


def frames_of_page() -> list[list[tuple[str, str]]]:
    """The stacks in docs/debugging.md, in training and in decoding, as files and functions."""
    blocks = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8").split("```")
    return [found for block in blocks if (found := FRAME.findall(block))]


def test_the_stacks_of_the_page_name_functions_of_their_files():
    training, decoding = frames_of_page()
    for file, name in training + decoding:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), file


def has_frames(stack: list[tuple[str, str]], frames: list[tuple[str, str]]) -> bool:
    """Whether the frames are in the stack, in this order."""
    remaining = iter(stack)
    return all(any(file.endswith(f"/{frame[0]}") and frame[1] == name for file, name in remaining) for frame in frames)


@pytest.mark.slow
def test_a_plugin_is_looked_into_while_it_trains_and_decodes(tmp_path, monkeypatch, capfd):
    stacks = []

    def stop() -> None:
        stacks.append([(each.filename, each.name) for each in traceback.extract_stack()])

    monkeypatch.setattr(sys, "breakpointhook", stop)
    (tmp_path / "plugin.py").write_text(PLUGIN)
    recipe = write_recipe(tiny_config(tmp_path / "cache", num_updates=3, evaluate_every=0), tmp_path / "run")
    train = ["train", f"--plugin={tmp_path}/plugin.py", f"--config={recipe}", "--config.model.attention=looked_into"]
    with on_devices(1):
        assert main([*train, "--profile_steps=2:2", f"--workdir={tmp_path}/run"]) == 0
    training, decoding = frames_of_page()
    assert any(has_frames(stack, training) for stack in stacks)
    assert "smallest score " in capfd.readouterr().out
    assert list((tmp_path / "run" / "profile").rglob("*.xplane.pb"))

    (tmp_path / "lines").write_text("a b\n")
    arguments = ["translate", f"--plugin={tmp_path}/plugin.py", f"--workdir={tmp_path}/run", "--checkpoint=last"]
    assert main([*arguments, f"--source={tmp_path}/lines"]) == 0
    assert any(has_frames(stack, decoding) for stack in stacks)

    monkeypatch.setenv("MAKE_NAN", "1")
    with jax.debug_nans(True):
        assert main([*arguments, f"--source={tmp_path}/lines"]) == 2
    assert "plugin.py, line 12: FloatingPointError: invalid value (nan) encountered in log" in capfd.readouterr().err
