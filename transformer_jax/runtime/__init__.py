"""Processes, signals, compilation cache, locks in stores, and capabilities of devices."""
