"""Constituency parsing: trees, their linearizations and scores, and the task that learns to write them."""
