"""The run directory: names of its files, its checkpoints, the selection of one."""
