"""Scores of translations and their reports; the only package that imports sacrebleu."""
