"""Runs: the trainer and its hooks, the run directory, logs and trackers, tools for checkpoints."""
