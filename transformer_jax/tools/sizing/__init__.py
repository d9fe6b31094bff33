"""Sizes and length of a run from its text and its time budget (``--budget``), and a watch on it."""
