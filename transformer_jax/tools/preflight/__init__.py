"""Needs of a training step on devices that need not be here: compiled for them, measured, never run."""
