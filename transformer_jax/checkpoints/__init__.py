"""Run directories and the checkpoints in them: their format, writing and restoring them, choosing one."""
