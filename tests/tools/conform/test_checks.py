"""conform on ideas that fail before any property can be checked."""

from transformer_jax.config.plugins import load_plugin
from transformer_jax.tools.conform.checks import findings

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
    assert (found.name, found.holds) == ("the model can be built", False)
    assert f"{file}, line 7: TypeError: " in found.detail and "num_heads" in found.detail
