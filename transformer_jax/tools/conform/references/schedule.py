"""References of schedules: the learning rates of updates."""

import numpy as np

from transformer_jax.tools.conform.equations import UpdateInputs


def wsd(params: dict[str, np.ndarray], inputs: UpdateInputs, mask: None) -> np.ndarray:
    """Warm up, stay constant, then fall as 1 - sqrt or a line (Hägele et al. 2024, equation 1)."""
    numbers, options = inputs.numbers, inputs.hyperparameters
    decay = inputs.settings.decay_share * options.num_updates
    done = np.maximum(numbers - (options.num_updates - decay), 0.0) / decay
    left = 1.0 - (np.sqrt(done) if inputs.settings.shape == "root" else done)
    return options.learning_rate * np.minimum(np.minimum(numbers / options.warmup_updates, 1.0), left)
