"""Scores of translations, and their reports. The only door to sacrebleu."""

from transformer_jax.evaluation.scores import EvaluationReport, Scores, perplexity, score_translations

__all__ = ["EvaluationReport", "Scores", "perplexity", "score_translations"]
