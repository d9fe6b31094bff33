"""References of feed-forward layers."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform import equations
from transformer_jax.tools.conform.equations import ArrayChange, LayerInputs, Reference, gelu, relu, sigmoid, softmax


def _gated_by(activation: ArrayChange) -> Reference:
    """Return (activation(x W) * x V) W2 (Shazeer 2020, equation 6)."""

    def gated(params: Any, inputs: LayerInputs, mask: np.ndarray) -> np.ndarray:
        return (activation(inputs.x @ params["gate_kernel"]) * (inputs.x @ params["wide_kernel"])) @ params[
            "narrow_kernel"
        ]

    return gated


swiglu, geglu, reglu = _gated_by(lambda x: x * sigmoid(x)), _gated_by(gelu), _gated_by(relu)


def ngpt(params: Any, inputs: LayerInputs, mask: np.ndarray) -> np.ndarray:
    """Return (u s_u * SiLU(v s_v sqrt(d_model))) W (Loshchilov et al. 2024, section 2.4.2)."""
    scales = params["activation"]
    gate = inputs.x @ params["gate_kernel"] * scales["ngpt_gate"] * np.sqrt(inputs.model.d_model)
    return (inputs.x @ params["wide_kernel"] * scales["ngpt_wide"] * gate * sigmoid(gate)) @ params["narrow_kernel"]


def relu_squared(params: Any, inputs: LayerInputs, mask: np.ndarray) -> np.ndarray:
    """Return ReLU(x W1 + b1)^2 W2 + b2 (So et al. 2021, Primer, section 4.1)."""
    return equations.feed_forward(params, inputs.x, lambda x: relu(x) ** 2)


def mixture_of_experts(params: Any, inputs: LayerInputs, mask: np.ndarray) -> np.ndarray:
    """Return the sum of the top experts times their probabilities, which are scaled to sum to 1
    (Shazeer et al. 2017, section 2).
    """
    probabilities, top = softmax(inputs.x @ params["router_kernel"]), inputs.settings.experts_per_token
    threshold = np.sort(probabilities, axis=-1)[..., -top, None]
    gates = np.where(probabilities >= threshold, probabilities, 0.0)
    gates = gates / gates.sum(-1, keepdims=True) if top > 1 else gates
    wide = relu(np.einsum("bld,edf->blef", inputs.x, params["experts_wide"]))
    return np.einsum("blef,efd,ble->bld", wide, params["experts_narrow"], gates)
