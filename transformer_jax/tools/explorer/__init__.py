"""The explorer: attention and beam searches of trained models on a self-contained HTML page."""
