"""Pictures of models and runs. The only door to matplotlib."""
