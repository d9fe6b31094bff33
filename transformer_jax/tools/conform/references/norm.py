"""References of norms."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import LayerInputs, rms_norm


def rmsnorm(params: Any, inputs: LayerInputs, mask: np.ndarray) -> np.ndarray:
    """Return g x / sqrt(mean(x^2) + epsilon) (Zhang and Sennrich 2019, equation 4)."""
    return rms_norm(inputs.x, params["scale"], inputs.model.norm_epsilon)
