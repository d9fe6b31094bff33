"""References of output layers: logits."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import LayerInputs


def ngpt(params: Any, inputs: LayerInputs, mask: np.ndarray) -> np.ndarray:
    """Return s_z E h, s_z initially 1 (Loshchilov et al. 2024, section 2.1)."""
    scales = params["ngpt_scales"] * np.sqrt(inputs.model.d_model)
    return scales * (inputs.x @ params["embedding"]["table"].T)


def soft_capped(params: Any, inputs: LayerInputs, mask: np.ndarray) -> np.ndarray:
    """Return cap tanh(logit / cap) (Gemma 2, 2024, section 2)."""
    cap = inputs.settings.cap
    return cap * np.tanh(inputs.x @ params["embedding"]["table"].T / cap)
