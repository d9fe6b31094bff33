"""References of initializations: the factor of the initial value of every parameter, by path."""

import numpy as np

from transformer_jax.tools.conform.equations import LayerInputs


def deepnorm(params: dict[str, np.ndarray], inputs: LayerInputs, mask: None) -> dict[str, float]:
    """Return beta for values, outputs and feed-forward kernels (Wang et al. 2022, figure 2)."""
    model = inputs.model
    if model.kind == "decoder_only":
        betas = {"decoder": (8 * model.num_layers) ** (-1 / 4)}
    else:
        encoder, decoder = model.num_encoder_layers, model.num_decoder_layers
        betas = {"encoder": 0.87 * (encoder**4 * decoder) ** (-1 / 16), "decoder": (12 * decoder) ** (-1 / 4)}
    scaled = ("attention/value", "attention/output", "wide_kernel", "narrow_kernel")
    return {path: betas[path[:7]] if path.endswith(scaled) else 1.0 for path in params}


def mup(params: dict[str, np.ndarray], inputs: LayerInputs, mask: None) -> dict[str, float]:
    """Return factors for variances 1 / width^2 of outputs and 1 of learned positions.

    Yang et al. 2022, table 3. Other variances are 1 / width. Positions have no factor sqrt(width).
    """
    ratio = inputs.model.d_model / inputs.settings.base_width
    exponents = {"projection": -0.5, "positions": 0.5}
    return {path: ratio ** exponents.get(path.partition("/")[0], 0.0) for path in params}
