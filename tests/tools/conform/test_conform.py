"""Broken ideas are found and named; every part of the kit keeps its promises."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError
from transformer_jax.config.plugins import load_plugin, register
from transformer_jax.kit import KIT
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.tools.conform.checks import (
    OF_LANGUAGE_MODELS,
    OF_MODELS,
    OF_TRANSFORMERS,
    OF_UPDATES,
    checked,
    findings,
)
from transformer_jax.tools.conform.comparison import Broken, require_near, require_same_bits
from transformer_jax.tools.conform.ideas import KINDS, Idea, ideas_named
from transformer_jax.tools.conform.trials import Trial, trial_config

PROPERTIES = OF_MODELS | OF_TRANSFORMERS | OF_LANGUAGE_MODELS | OF_UPDATES


TWO_IDEAS = """
import transformer_jax
class Mine: pass
transformer_jax.register("attention", "mine")(Mine)
transformer_jax.register("optimizer", "mine")(lambda hyperparameters: [])
"""


class AcausalKeys(AttentionChange):
    """Every key has the key after it in it."""

    def keys(self, key_BGMK, positions):
        return key_BGMK + jnp.roll(key_BGMK, -1, axis=2)


class KeysByIndex(AttentionChange):
    """Keys depend on their index in the array, which in a cache is not their position."""

    def keys(self, key_BGMK, positions):
        return key_BGMK * (1.0 + jnp.arange(key_BGMK.shape[2], dtype=jnp.float32))[None, None, :, None]


def odd_width(settings, config, site, *, dropout, precision):
    """A width that no axis of a mesh divides."""
    return OddWidth()


class OddWidth(nn.Module):
    @nn.compact
    def __call__(self, inputs, *, train):
        wide = self.param("wide_kernel", nn.initializers.normal(), (inputs.shape[-1], 7))
        narrow = self.param("narrow_kernel", nn.initializers.normal(), (7, inputs.shape[-1]))
        return jnp.einsum("BLD,DF,FE->BLE", inputs, wide, narrow)


def ascending(hyperparameters):
    """Steps along the gradient instead of against it."""
    return [optax.scale(-1.0)]


@pytest.fixture(scope="module", autouse=True)
def broken_ideas(plugins_of_this_file):
    register("attention", "acausal_keys")(AcausalKeys)
    register("attention", "keys_by_index")(KeysByIndex)
    register("feed_forward", "odd_width")(odd_width)
    register("optimizer", "ascending")(ascending)


@pytest.mark.parametrize(
    ("idea", "model", "name", "expected"),
    [
        (
            Idea("attention", "acausal_keys"),
            "language_model",
            "causal by gradient",
            "of length 3: the logits of token 2 depend on",
        ),
        (
            Idea("attention", "keys_by_index"),
            "translation",
            "a decoding step equals the full pass",
            "of length 2: token 2",
        ),
        (Idea("feed_forward", "odd_width"), "language_model", "meshes equal one device", "7 in params/"),
        (Idea("optimizer", "ascending"), "translation", "learns a batch", "the loss goes from"),
    ],
)
def test_a_broken_idea_is_named_with_its_smallest_case(idea, model, name, expected):
    trial = Trial(trial_config(model, idea.settings({})))
    finding = checked(trial, model, name, PROPERTIES[name])
    assert not finding.holds and expected in finding.detail


NEEDED = {
    "load_balance": {"model": {"feed_forward": "mixture_of_experts"}},
    "mup": {"optimizer": {"name": "mup"}, "model": {"tying": "none"}},
    "gradient_noise": {"batching": {"accumulation_steps": 2}},
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [each for each in sorted(KIT) if each[0] in KINDS])
def test_every_part_of_the_kit_conforms(kind, name):
    for model in KINDS[kind].models:
        values = Idea(kind, name).settings(NEEDED.get(name, {}))
        found = findings(model, values, is_of_training=KINDS[kind].is_of_training)
        assert [finding for finding in found if not finding.holds] == []


def test_ideas_are_found_by_name_kind_and_file(tmp_path):
    assert ideas_named("rope") == [Idea("positions", "rope")]
    assert ideas_named("cosine") == [Idea("attention", "cosine"), Idea("schedule", "cosine")]
    assert ideas_named("schedule:cosine") == [Idea("schedule", "cosine")]
    with pytest.raises(ConfigError, match=r"no part 'ropes'; did you mean rope\?"):
        ideas_named("ropes")
    file = tmp_path / "mine.py"
    file.write_text("import transformer_jax\ntransformer_jax.register('attention', 'mine')(object)\n")
    assert ideas_named(str(file)) == [Idea("attention", "mine")]
    file.write_text(TWO_IDEAS)
    load_plugin(str(file))
    assert ideas_named(str(file)) == [Idea("attention", "mine"), Idea("optimizer", "mine")]
    file.write_text("")
    with pytest.raises(ConfigError, match="registers none of attention, "):
        ideas_named(str(file))


def test_not_a_number_and_other_bits_are_differences():
    with pytest.raises(Broken, match="differs by nan"):
        require_near({"a": np.array([np.nan])}, {"a": np.array([1.0])})
    with pytest.raises(Broken, match="a differs"):
        require_same_bits({"a": np.array([0.0])}, {"a": np.array([-0.0])})


def test_the_command_needs_one_idea(capsys):
    assert main(["conform"]) == 2
    assert "give one idea, as in transformer-jax conform rope" in capsys.readouterr().err
