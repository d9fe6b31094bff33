"""References of optimizers: the direction of the last update."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import UpdateInputs


def lion(params: dict[str, np.ndarray], inputs: UpdateInputs, mask: None) -> dict[str, Any]:
    """sign(b1 m + (1 - b1) g), then m = b2 m + (1 - b2) g (Chen et al. 2023, algorithm 2)."""
    b1, b2 = inputs.hyperparameters.b1, inputs.hyperparameters.b2
    directions = {}
    for path in params:
        momentum = 0.0
        for gradient in (each[path] for each in inputs.gradients):
            directions[path] = np.sign(b1 * momentum + (1 - b1) * gradient)
            momentum = b2 * momentum + (1 - b2) * gradient
    return directions
