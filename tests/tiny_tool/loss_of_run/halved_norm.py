"""A norm that halves its input."""

from transformer_jax import register


@register("norm", "halved")
def halved(settings, model, site, *, precision):
    """Return ``x -> x / 2``."""
    return lambda x: x / 2
