"""Checkpoints: their format, writing, restoring and averaging them, choosing one."""
