"""Scores of translations, and their reports. The only door to sacrebleu."""

from transformer_jax.evaluation.report import EvaluationReport, perplexity
from transformer_jax.evaluation.scores import Scores, score_translations

__all__ = ["EvaluationReport", "Scores", "perplexity", "score_translations"]
