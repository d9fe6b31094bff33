"""Scores of translations and their reports; the only package that imports sacrebleu."""

from transformer_jax.evaluation.scores import EvaluationReport, Scores, perplexity, score_translations

__all__ = ["EvaluationReport", "Scores", "perplexity", "score_translations"]
