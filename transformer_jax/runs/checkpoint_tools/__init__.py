"""Checkpoints of runs listed, described, compared, averaged, deleted."""
