"""What a running training tells: progress on the terminal, metrics on disk."""
