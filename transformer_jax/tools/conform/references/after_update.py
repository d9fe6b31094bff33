"""References of changes after an update: all parameters."""

import re

import numpy as np

from transformer_jax.tools.conform.equations import UpdateInputs

Arrays = dict[str, np.ndarray]


def balance_bias(params: Arrays, inputs: UpdateInputs, mask: None) -> Arrays:
    """Return b_i + u sign(e_i), e = mean tokens - tokens of an expert (Wang et al. 2024)."""
    changed = dict(params)
    for path, (tokens, _) in inputs.statistics.items():
        bias = re.sub("expert_load$", "balance_bias", path)
        changed[bias] = params[bias] + inputs.settings.rate * np.sign(tokens.mean() - tokens)
    return changed


def ngpt(params: Arrays, inputs: UpdateInputs, mask: None) -> Arrays:
    """Divide matrices by the norms of vectors of length d_model (Loshchilov et al. 2024, 2.6)."""
    changed = dict(params)
    for path in filter(re.compile("(query|key|value|output|kernel|table)$").search, params):
        axis = 0 if re.search("(query|key|value|wide_kernel|gate_kernel)$", path) else -1
        changed[path] = params[path] / np.linalg.norm(params[path], axis=axis, keepdims=True)
    return changed
