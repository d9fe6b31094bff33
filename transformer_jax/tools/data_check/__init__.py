"""Checks of text before training: faults of lines and pairs, languages, and sides that are shifted."""
