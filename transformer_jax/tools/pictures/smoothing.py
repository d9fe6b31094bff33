"""Label smoothing (Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4): target, loss, gradient."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.pictures.subject import Subject
from transformer_jax.training.losses import label_smoothed_cross_entropy

CLASSES = 8


class SmoothingNumbers(NamedTuple):
    """Loss and its derivative in the logit of the label, with smoothing and without: [2, N].

    At ``probability`` [N] of the label; the
    other classes share the rest equally. ``target`` [V] is the smoothed distribution of label 0.
    """

    probability: np.ndarray
    loss: np.ndarray
    gradient: np.ndarray
    target: np.ndarray

    @property
    def best(self) -> float:
        """The probability of the label at which the smoothed loss is least."""
        return float(self.probability[self.loss[0].argmin()])


def smoothing_numbers(smoothing: float, classes: int = CLASSES) -> SmoothingNumbers:
    """The loss of the library, and its gradient, at logits that give the label a probability from 0.001 to 0.9999.

    The target is read off the gradient, which is softmax(z) - q'.
    """
    probability = np.append(np.linspace(0.001, 0.999, 999), 0.9999)
    rest = np.repeat(np.log((1 - probability) / (classes - 1))[:, None], classes - 1, axis=1)
    logits = jnp.asarray(np.concatenate([np.log(probability)[:, None], rest], axis=1), jnp.float32)

    def loss(logits_V: jax.Array, eps: float | None) -> jax.Array:
        label, weight = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), jnp.float32)
        return label_smoothed_cross_entropy(logits_V[None, None], label, weight, eps).loss

    found = [jax.vmap(jax.value_and_grad(lambda z, eps=eps: loss(z, eps)))(logits) for eps in (smoothing, None)]
    target = np.exp(logits[0]) - np.asarray(found[0][1][0])
    losses, gradients = (np.stack([np.asarray(each[part]) for each in found]) for part in (0, 1))
    return SmoothingNumbers(probability, losses, gradients[:, :, 0], target)


def make(subject: Subject, path: Path) -> list[str]:
    """Draws them for the smoothing of ``subject`` and a vocabulary of eight."""
    smoothing = subject.config.training.label_smoothing
    numbers = smoothing_numbers(smoothing)
    names = f"smoothing {smoothing:g}", "none"
    classes = np.arange(CLASSES)
    target = {names[0]: (classes, numbers.target), names[1]: (classes, (classes == 0).astype(float))}
    x = "probability that the model gives the label"
    zero = {"_zero": (np.array([0, 1]), np.array([0, 0]))}
    losses, gradients = (
        {name: (numbers.probability, row) for name, row in zip(names, rows, strict=True)}
        for rows in (numbers.loss, numbers.gradient)
    )
    panels = [
        LinePanel(f"Target distribution, V = {CLASSES}", target, "class; the label is 0", "probability", marks="o"),
        LinePanel("Loss", losses, x, "nats"),
        LinePanel("Its derivative in the label's logit", gradients | zero, x, "", dotted=("_zero",)),
    ]
    draw_panels(panels, path, title="Label smoothing")
    label, other = numbers.target[:2]
    predicted = 1 - smoothing + smoothing / CLASSES
    return [
        f"smoothing {smoothing:g}, V = {CLASSES}: target {label:.4f} for the label, {other:.4f} for each other class",
        f"  loss least, {numbers.loss[0].min():.4f} nats, label at {numbers.best:.4f}; 1 - eps + eps/V = {predicted:.4f}",
    ]
