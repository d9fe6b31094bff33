"""References of changes after an update: all parameters."""

import re

import numpy as np

from transformer_jax.tools.conform.equations import UpdateInputs

Arrays = dict[str, np.ndarray]


def balance_bias(params: Arrays, inputs: UpdateInputs, mask: None) -> Arrays:
    """b_i + u sign(e_i), e_i the mean number of tokens minus that of expert i (Wang et al. 2024, algorithm 1)."""
    changed = dict(params)
    for path, (tokens, _) in inputs.statistics.items():
        bias = re.sub("expert_load$", "balance_bias", path)
        changed[bias] = params[bias] + inputs.settings.rate * np.sign(tokens.mean() - tokens)
    return changed


def ngpt(params: Arrays, inputs: UpdateInputs, mask: None) -> Arrays:
    """Every matrix divided by the norms of its vectors of length d_model (Loshchilov et al. 2024, section 2.6, step 2)."""
    first = r"(query|key|value|wide_kernel|gate_kernel)$"
    axes = {
        path: 0 if re.search(first, path) else -1
        for path in params
        if re.search(rf"{first}|output$|kernel$|table$", path)
    }
    return params | {
        path: params[path] / np.linalg.norm(params[path], axis=axis, keepdims=True) for path, axis in axes.items()
    }
