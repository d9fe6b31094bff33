"""Runs side by side: what they reached, in which settings they differ, and whose translations are better."""
