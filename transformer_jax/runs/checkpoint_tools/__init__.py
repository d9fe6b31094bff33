"""Looking at the checkpoints of runs and keeping house among them: listed, described, compared, averaged, deleted."""
