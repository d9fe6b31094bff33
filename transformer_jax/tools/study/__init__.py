"""Studies of many runs: sweeps, duels, reports, comparisons."""
