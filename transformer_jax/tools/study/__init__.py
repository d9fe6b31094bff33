"""Sweeps: their definition, workers, Optuna study and leaderboard."""
