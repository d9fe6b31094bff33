"""The kit: parts of published models and optimizers, registered as a plugin registers its own; a file holds one idea.

``index.toml`` lists them.
"""
