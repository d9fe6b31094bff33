"""A run that the tests of commands look at."""

from shared_run import few_devices, run

__all__ = ["few_devices", "run"]
