"""The models of conform have the settings of parts, and an idea that cannot be built is one finding."""

import jax

from transformer_jax.config.plugins import load_plugin
from transformer_jax.models.build import init_decoder_only
from transformer_jax.tools.conform.checks import findings
from transformer_jax.tools.conform.ideas import Idea
from transformer_jax.tools.conform.trials import Trial, trial_config

INCOMPLETE = """
import transformer_jax
from transformer_jax.layers.modified_attention import AttentionChange

@transformer_jax.register("positions", "incomplete")
def incomplete(settings, model, site):
    return AttentionChange(site=site)
"""


def test_a_model_that_cannot_be_built_is_one_finding_with_the_line(tmp_path):
    file = tmp_path / "incomplete.py"
    file.write_text(INCOMPLETE)
    load_plugin(str(file))
    (found,) = findings("language_model", {"model": {"positions": "incomplete"}})
    assert (found.name, found.holds) == ("model and loss can be built", False)
    assert f"{file}, line 7: TypeError: " in found.detail and "num_heads" in found.detail


def test_models_have_the_settings_of_their_parts_and_the_base_has_none():
    idea, stated = Idea("attention", "grouped_query"), {"parts": {"grouped_query": {"key_value_heads": 1}}}
    trial = Trial(trial_config("language_model", idea.settings(stated)))
    shapes = jax.eval_shape(lambda: init_decoder_only(trial.model, jax.random.key(0)))
    assert shapes["decoder_layers_0"]["self_attention"]["key"].shape == (16, 1, 4)
    assert not trial_config("language_model", idea.settings_without(stated)).parts
