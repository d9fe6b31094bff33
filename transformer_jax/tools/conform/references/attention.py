"""References of changes of attention."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import AttentionInputs, layer_norm, multi_head


def qk_norm(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """softmax(LN(Q) LN(K)^T / sqrt(K)) V (Dehghani et al. 2023, section 2)."""
    gains, epsilon = params["changes_qk_norm"], inputs.model.norm_epsilon
    return multi_head(
        params,
        inputs,
        mask,
        queries=lambda query: layer_norm(query, gains["query_gain"], 0.0, epsilon),
        keys=lambda key: layer_norm(key, gains["key_gain"], 0.0, epsilon),
    )
