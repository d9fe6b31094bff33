"""References of loss terms: sums over tokens."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import LossInputs


def z_loss(params: Any, inputs: LossInputs, mask: np.ndarray) -> float:
    """weight log(Z)^2 (Chowdhery et al. 2022, PaLM, section 5)."""
    log_normalizers = np.log(np.exp(inputs.logits[0]).sum(-1))
    return inputs.settings.weight * np.sum(log_normalizers**2 * mask)
