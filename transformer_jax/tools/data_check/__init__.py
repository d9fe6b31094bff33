"""Checks of text before training: faults, languages, and sides that are shifted."""
