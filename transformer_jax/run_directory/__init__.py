"""The run directory: names of its files, its checkpoints on disk, the choice of a checkpoint."""
