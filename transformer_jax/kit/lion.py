"""Lion (Chen et al. 2023, algorithm 2)."""

import optax

from transformer_jax.config import Hyperparameters
from transformer_jax.registry.plugins import register


@register("optimizer", "lion")
def lion(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    """Return the sign of a momentum, with optimizer.b1 and b2; for a tenth of Adam's rate."""
    return [optax.scale_by_lion(hyperparameters.b1, hyperparameters.b2)]
