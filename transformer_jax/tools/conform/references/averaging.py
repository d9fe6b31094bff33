"""References of averages: the evaluated parameters after updates by sgd."""

import numpy as np

from transformer_jax.tools.conform.equations import UpdateInputs


def ema(params: dict[str, np.ndarray], inputs: UpdateInputs, mask: None) -> dict[str, np.ndarray]:
    """a = d a + (1 - d) x after every update, d at most (1 + t) / (10 + t) (TensorFlow's ExponentialMovingAverage)."""
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
    """x_t, the mean of z_1, ..., z_t, where z loses the gradients (Defazio et al. 2024, equations 2 to 4)."""
    iterates = {path: -inputs.rate * np.cumsum([tree[path] for tree in inputs.gradients], axis=0) for path in params}
    return {path: value + iterates[path].mean(axis=0) for path, value in params.items()}
