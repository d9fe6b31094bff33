"""Scores of translations and their reports. Only this package imports sacrebleu."""
