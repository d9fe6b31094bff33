"""References of optimizers: the direction of the last update."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import UpdateInputs

Arrays = dict[str, np.ndarray]


def lion(params: Arrays, inputs: UpdateInputs, mask: None) -> Arrays:
    """Return sign(b1 m + (1 - b1) g), then m = b2 m + (1 - b2) g (Chen et al. 2023)."""
    b1, b2 = inputs.hyperparameters.b1, inputs.hyperparameters.b2
    directions = {}
    for path in params:
        momentum: Any = 0.0
        for gradient in _gradients(inputs, path):
            directions[path] = np.sign(b1 * momentum + (1 - b1) * gradient)
            momentum = b2 * momentum + (1 - b2) * gradient
    return directions


def mup(params: Arrays, inputs: UpdateInputs, mask: None) -> Arrays:
    """Return Adam / width, of input embeddings / sqrt(width) (Yang et al. 2022, table 3)."""
    ratio, directions = inputs.model.d_model / inputs.settings.base_width, {}
    for path, value in params.items():
        exponent = -0.5 if "embedding/table" in path and "projection" not in path else -1.0 if value.ndim > 1 else 0.0
        directions[path] = ratio**exponent * _adam(_gradients(inputs, path), inputs.hyperparameters)
    return directions


def muon(params: Arrays, inputs: UpdateInputs, mask: None) -> Arrays:
    """Return orthogonalized Nesterov momentum of matrices, Adam of others (Jordan et al. 2024).

    Their root mean square is ``rms`` (Liu et al. 2025, equation 4). Corrections are as in optax.
    """
    beta, directions = inputs.settings.beta, {}
    for path, value in params.items():
        gradients = _gradients(inputs, path)
        if value.ndim < 2 or path.endswith(("table", "bias")):
            directions[path] = _adam(gradients, inputs.hyperparameters, nesterov=True)
            continue
        momentum, t = (
            sum((1 - beta) * beta**age * gradient for age, gradient in enumerate(gradients[::-1])),
            len(gradients),
        )
        ahead = beta * momentum / (1 - beta ** (t + 1)) + (1 - beta) * gradients[-1] / (1 - beta**t)
        rows = int(np.prod(value.shape[:2])) if path.endswith("attention/output") else len(value)
        x = ahead.reshape(rows, -1)
        x = x / (np.linalg.norm(x) + inputs.hyperparameters.epsilon)
        for _ in range(inputs.settings.iterations):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        directions[path] = inputs.settings.rms * np.sqrt(max(x.shape)) * x.reshape(value.shape)
    return directions


def soap(params: Arrays, inputs: UpdateInputs, mask: None) -> Arrays:
    """Return Adam in eigenbases of averaged G G^T and G^T G (Vyas et al. 2024, algorithm 3).

    The first update initializes the bases, and power iteration with QR changes them (algorithm 4).
    """
    b1, b2 = inputs.hyperparameters.b1, inputs.hyperparameters.b2
    directions = {}
    for path, value in params.items():
        is_vector = value.ndim < 2 or path.endswith(("bias", "scale"))
        rows = 1 if is_vector else int(np.prod(value.shape[:2])) if path.endswith("attention/output") else len(value)
        gradients = [matrix.reshape(rows, -1) for matrix in _gradients(inputs, path)]
        is_rotated = [1 < size <= inputs.settings.max_size and not is_vector for size in gradients[0].shape]
        covariances: list[Any] = [0.0, 0.0]
        bases = [np.eye(size) for size in gradients[0].shape]
        mean: Any = 0.0
        square: Any = 0.0
        for number, gradient in enumerate(gradients):
            if number:
                mean = b1 * mean + (1 - b1) * gradient
                square = b2 * square + (1 - b2) * (bases[0].T @ gradient @ bases[1]) ** 2
                inside = bases[0].T @ mean @ bases[1] / (1 - b1**number)
                inside = inside / (np.sqrt(square / (1 - b2**number)) + inputs.hyperparameters.epsilon)
                directions[path] = (bases[0] @ inside @ bases[1].T).reshape(value.shape)
            for side, matrix in enumerate((gradient, gradient.T)):
                covariances[side] = b2 * covariances[side] + (1 - b2) * matrix @ matrix.T
                if is_rotated[side] and number == 0:
                    bases[side] = np.linalg.eigh(covariances[side])[1][:, ::-1]
                elif is_rotated[side] and number % inputs.settings.precondition_every == 0:
                    bases[side] = np.linalg.qr(covariances[side] @ bases[side])[0]
    return directions


def _gradients(inputs: UpdateInputs, path: str) -> list[np.ndarray]:
    return [gradient[path] for gradient in inputs.gradients]


def _adam(gradients: list[np.ndarray], options: Any, *, nesterov: bool = False) -> np.ndarray:
    """Return the direction of Adam (Kingma and Ba 2015), or with Nesterov momentum (Dozat 2016)."""
    b1, b2, t = options.b1, options.b2, len(gradients)
    mean = sum((1 - b1) * b1**age * gradient for age, gradient in enumerate(gradients[::-1]))
    square = sum((1 - b2) * b2**age * gradient**2 for age, gradient in enumerate(gradients[::-1]))
    if nesterov:
        mean = b1 * mean / (1 - b1 ** (t + 1)) + (1 - b1) * gradients[-1] / (1 - b1**t)
    else:
        mean = mean / (1 - b1**t)
    result: np.ndarray = mean / (np.sqrt(square / (1 - b2**t)) + options.epsilon)
    return result
