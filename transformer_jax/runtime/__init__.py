"""Processes, signals, compilation cache, atomic files, object stores, and the capabilities of devices."""
