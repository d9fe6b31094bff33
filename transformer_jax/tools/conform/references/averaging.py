"""References of averages: the evaluated parameters after updates by sgd."""

import numpy as np

from transformer_jax.tools.conform.equations import UpdateInputs


def ema(params: dict[str, np.ndarray], inputs: UpdateInputs, mask: None) -> dict[str, np.ndarray]:
    """Return a = d a + (1 - d) x, d at most (1 + t) / (10 + t), as in TensorFlow."""
    averages = {}
    for path, value in params.items():
        average = value
        for t, gradient in enumerate((tree[path] for tree in inputs.gradients), 1):
            value = value - inputs.rate * gradient
            decay = min(inputs.settings.decay, (1 + t) / (10 + t))
            average = decay * average + (1 - decay) * value
        averages[path] = average
    return averages


def schedule_free(params: dict[str, np.ndarray], inputs: UpdateInputs, mask: None) -> dict[str, np.ndarray]:
    """Return the mean of z_1, ..., z_t, which lose gradients (Defazio et al. 2024, eq. 2 to 4)."""
    iterates = {path: -inputs.rate * np.cumsum([tree[path] for tree in inputs.gradients], axis=0) for path in params}
    return {path: value + iterates[path].mean(axis=0) for path, value in params.items()}
