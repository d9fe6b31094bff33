"""Checkpoints: writing, restoring and averaging them."""
