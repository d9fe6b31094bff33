"""Scores of translations from plugins: computed, and selected like the package's own."""

from pathlib import Path

import pytest

from transformer_jax.config import ConfigError, from_dict
from transformer_jax.config.plugins import load_plugin, register
from transformer_jax.evaluation.scores import score_translations

ROOT = Path(__file__).resolve().parents[2]


def test_a_metric_of_a_plugin_is_scored_and_selects():
    with pytest.raises(ConfigError, match="a plugin may add it"):
        from_dict({"evaluation": {"selection": "length_ratio"}})
    load_plugin(str(ROOT / "examples" / "length_ratio.py"))

    @register("metric", "copied")
    class Copied:
        direction = "minimize"

        def __new__(cls, hypotheses, references, sources):
            return sum(text in sources for text in hypotheses)

    config = from_dict({"evaluation": {"selection": "length_ratio", "metrics": "copied,bleu"}})
    assert config.selection.key == "validation/length_ratio" and config.selection.direction == "maximize"
    assert {metric.name for metric in config.metrics} == {"bleu", "chrf", "length_ratio", "loss", "perplexity"}
    scores = score_translations(["a b", "c"], [["a", "d e"], ["f", "g"]], "en", config.evaluation, ["x", "c"])
    assert list(scores.values) == ["bleu", "copied"] and scores.values["copied"] == 1
    with_ratio = score_translations(["a b", "c"], ["a", "d"], "en", config.with_all_scores.evaluation, ["x", "c"])
    assert ("copied", "1.00", "of a plugin") in with_ratio.rows()
    selecting = from_dict({"evaluation": {"selection": "copied"}})
    assert selecting.selection.is_better(1, 2)
