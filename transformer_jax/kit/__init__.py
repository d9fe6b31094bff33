"""The kit: parts of published models and optimizers, one idea a file, registered like a plugin's.

``index.toml`` lists them.
"""
