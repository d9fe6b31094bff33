"""Processes, signals, compilation cache, the lock of a run in a store, and the capabilities of devices."""
