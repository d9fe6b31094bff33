"""The trainer, its hooks, the run directory, logs and trackers."""
