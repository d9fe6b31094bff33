"""List, describe and average checkpoints."""
