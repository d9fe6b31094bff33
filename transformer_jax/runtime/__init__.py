"""Set-up of a process before it computes: distributed start-up, signals, caches, and the capabilities of its devices."""
