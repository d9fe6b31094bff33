"""References of norms."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import LayerInputs


def rmsnorm(params: Any, inputs: LayerInputs, mask: np.ndarray) -> np.ndarray:
    """g x / sqrt(mean(x^2) + epsilon) (Zhang and Sennrich 2019, equation 4)."""
    mean_square = np.mean(inputs.x**2, axis=-1, keepdims=True)
    return params["scale"] * inputs.x / np.sqrt(mean_square + inputs.model.norm_epsilon)
