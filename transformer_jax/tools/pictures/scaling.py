"""Why scores are divided by sqrt(d_k) (Vaswani et al. 2017, section 3.2.1 and its footnote 4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.pictures.subject import Subject

KEY_SIZES = tuple(2**power for power in range(11))
QUERIES, KEYS = 2000, 32


class ScalingNumbers(NamedTuple):
    """Means over random queries for each of ``key_sizes`` [N], without scaling and with: [2, N].

    ``variance`` of q · k, ``entropy`` of the softmax over the keys in nats, ``gradient``: Frobenius norm of its Jacobian.
    """

    key_sizes: np.ndarray
    variance: np.ndarray
    entropy: np.ndarray
    gradient: np.ndarray


def softmax_jacobian_norm(probabilities: np.ndarray) -> np.ndarray:
    """Frobenius norm of diag(p) - p pᵀ, the derivative of the softmax in its scores; p [..., M], result [...].

    Its square is sum p² - 2 sum p³ + (sum p²)².
    """
    squares = np.sum(probabilities**2, axis=-1)
    return np.sqrt(np.maximum(squares - 2 * np.sum(probabilities**3, axis=-1) + squares**2, 0.0))


def scaling_numbers(
    key_sizes: Sequence[int] = KEY_SIZES, queries: int = QUERIES, keys: int = KEYS, seed: int = 0
) -> ScalingNumbers:
    """Draws queries and keys with independent entries of mean 0 and variance 1."""
    rng = np.random.default_rng(seed)
    rows = []
    for size in key_sizes:
        # Every query has keys of its own, so that all scores are independent.
        dots = np.einsum("qk,qmk->qm", rng.standard_normal((queries, size)), rng.standard_normal((queries, keys, size)))
        rows.append([_of_scores(scores) for scores in (dots, dots / np.sqrt(size))])
    variance, entropy, gradient = np.transpose(rows, (2, 1, 0))
    return ScalingNumbers(np.asarray(key_sizes), variance, entropy, gradient)


def _of_scores(scores: np.ndarray) -> tuple[float, float, float]:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    entropy = -np.sum(p * np.log(np.maximum(p, np.finfo(float).tiny)), axis=-1)
    return scores.var(), entropy.mean(), softmax_jacobian_norm(p).mean()


def make(subject: Subject, path: Path) -> list[str]:
    """Draws all three against d_k; they are of random vectors, whatever the ``subject``."""
    del subject
    numbers = scaling_numbers()
    sizes = numbers.key_sizes
    both = ("q · k", "q · k / sqrt(d_k)")

    def lines(values: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {name: (sizes, row) for name, row in zip(both, values, strict=True)}

    variance = lines(numbers.variance) | {"d_k": (sizes, sizes.astype(float))}
    entropy = lines(numbers.entropy) | {"uniform: ln M": (sizes[[0, -1]], [np.log(KEYS)] * 2)}
    panels = [
        LinePanel("Variance of a score", variance, "d_k", "", dotted=("d_k",), x_scale="log", y_scale="log"),
        LinePanel(
            f"Entropy of the softmax over {KEYS} keys", entropy, "d_k", "nats", dotted=("uniform: ln M",), x_scale="log"
        ),
        LinePanel("Norm of the softmax's Jacobian", lines(numbers.gradient), "d_k", "", x_scale="log", y_scale="log"),
    ]
    draw_panels(panels, path, title="Scores of random queries and keys")
    table = [f"{'d_k':>5}  {'variance':>20}  {'entropy':>15}  {'gradient':>15}     without and with 1/sqrt(d_k)"]
    for size, *values in zip(sizes, numbers.variance.T, numbers.entropy.T, numbers.gradient.T, strict=True):
        (v, scaled_v), (e, scaled_e), (g, scaled_g) = values
        table.append(f"{size:>5}  {v:>11.2f} {scaled_v:>8.2f}  {e:>7.3f} {scaled_e:>7.3f}  {g:>7.4f} {scaled_g:>7.4f}")
    return table
