"""Constituency parsing: trees, linearizations, scores, and the task that learns to write trees."""
