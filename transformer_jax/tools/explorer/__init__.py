"""The explorer: attention and beam searches of trained models on one page that needs no network."""
