"""References of residual connections: the input of the sublayer, and the output of the connection."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import LayerInputs, layer_norm


def sandwich(params: Any, inputs: LayerInputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x + Norm(Sublayer(Norm(x))) (Ding et al. 2021, CogView, section 2.4)."""
    epsilon = inputs.model.norm_epsilon
    before = layer_norm(inputs.x, **params["norm"], epsilon=epsilon)
    return before, inputs.x + layer_norm(inputs.y, **params["output_norm"], epsilon=epsilon)


def rezero(params: Any, inputs: LayerInputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x + g Sublayer(x) (Bachlechner et al. 2021, equation 4)."""
    return inputs.x, inputs.x + params["gain"] * inputs.y


def deepnorm(params: Any, inputs: LayerInputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """LN(alpha x + Sublayer(x)), with alpha by the depths N and M of encoder and decoder (Wang et al. 2022, figure 2)."""
    if inputs.model.kind == "decoder_only":
        alpha = (2 * inputs.site.depth) ** (1 / 4)
    elif inputs.site.stack == "decoder":
        alpha = (3 * inputs.site.depth) ** (1 / 4)
    else:
        alpha = 0.81 * (inputs.site.depth**4 * inputs.model.num_decoder_layers) ** (1 / 16)
    total = alpha * inputs.x + inputs.y
    return inputs.x, layer_norm(total, **params["norm"], epsilon=inputs.model.norm_epsilon)
