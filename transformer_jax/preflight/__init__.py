"""What a training step will need on devices that need not be here: compiled for them, measured, never run."""
