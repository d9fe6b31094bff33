"""The public Python API of ``transformer_jax``: trained runs, and training with callbacks."""
