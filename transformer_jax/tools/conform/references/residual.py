"""References of residual connections: the input of the sublayer, and the output."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import LayerInputs, layer_norm, unit_norm


def sandwich(params: Any, inputs: LayerInputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x + Norm(Sublayer(Norm(x))) (Ding et al. 2021, CogView, section 2.4)."""
    epsilon = inputs.model.norm_epsilon
    before = layer_norm(inputs.x, **params["norm"], epsilon=epsilon)
    return before, inputs.x + layer_norm(inputs.y, **params["output_norm"], epsilon=epsilon)


def hyper_connections(params: Any, inputs: LayerInputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A_r^T H + B^T Sublayer(Norm(A_m^T H)) (Zhu et al. 2024, equations 2 and 10 to 13)."""
    epsilon = inputs.model.norm_epsilon
    change = np.tanh(layer_norm(inputs.x, **params["stream_norm"], epsilon=epsilon) @ params["connection"])
    alpha = params["alpha"] + params["scales"][0] * change[..., 1:]
    beta = params["beta"] + params["scales"][1] * change[..., 0]
    read = np.einsum("bln,blnd->bld", alpha[..., 0], inputs.x)
    mixed = np.einsum("blnm,blnd->blmd", alpha[..., 1:], inputs.x)
    return layer_norm(read, **params["norm"], epsilon=epsilon), mixed + np.einsum("bln,bld->blnd", beta, inputs.y)


def rezero(params: Any, inputs: LayerInputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x + g Sublayer(x) (Bachlechner et al. 2021, equation 4)."""
    return inputs.x, inputs.x + params["gain"] * inputs.y


def ngpt(params: Any, inputs: LayerInputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Norm(h + alpha (Norm(y) - h)), alpha = 0.05 at first (Loshchilov et al. 2024)."""
    alpha = np.abs(params["ngpt_rates"]) * 0.05 * np.sqrt(inputs.model.d_model)
    start = unit_norm(inputs.x)
    return inputs.x, unit_norm(start + alpha * (unit_norm(inputs.y) - start))


def deepnorm(params: Any, inputs: LayerInputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return LN(alpha x + Sublayer(x)), alpha by the depths of the stacks (Wang et al. 2022)."""
    if inputs.model.kind == "decoder_only":
        alpha = (2 * inputs.site.depth) ** (1 / 4)
    elif inputs.site.stack == "decoder":
        alpha = (3 * inputs.site.depth) ** (1 / 4)
    else:
        alpha = 0.81 * (inputs.site.depth**4 * inputs.model.num_decoder_layers) ** (1 / 16)
    total = alpha * inputs.x + inputs.y
    return inputs.x, layer_norm(total, **params["norm"], epsilon=inputs.model.norm_epsilon)
