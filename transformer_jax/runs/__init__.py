"""The trainer, its hooks, the first state of a run, logs and trackers."""
