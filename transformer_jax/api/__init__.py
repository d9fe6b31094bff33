"""What ``import transformer_jax`` offers in Python: trained runs, and training with callbacks."""
