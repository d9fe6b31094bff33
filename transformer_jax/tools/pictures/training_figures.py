"""Figures of the learning rate and of label smoothing.

Vaswani et al. 2017, sections 5.3 and 5.4; Szegedy et al. 2016, section 7.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.config import ExperimentConfig, hyperparameters_of
from transformer_jax.config.plugins import names_of, settings_class
from transformer_jax.tools.pictures.figures import Subject
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.training.losses import label_smoothed_cross_entropy
from transformer_jax.training.schedules import make_schedule

POINTS = 1000
CLASSES = 8


def schedule_numbers(config: ExperimentConfig, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Updates [N], counted from 1, and rates [N] of the schedule ``name``, with the settings of ``config`` or its defaults."""
    last, warmup = config.training.num_updates, config.optimizer.warmup_updates
    updates = np.unique(np.append(np.linspace(1, last, POINTS).astype(np.int64), min(warmup, last)))
    settings = settings_class("schedule", name)
    parts = config.parts if settings is None or name in config.parts else {name: settings()}
    schedule = make_schedule(name, hyperparameters_of(config), config.model.d_model, parts)
    return updates, np.asarray(schedule(updates))


def draw_schedule(subject: Subject, path: Path) -> list[str]:
    """Draws the schedule, and all schedules with the same warm-up, divided by their peaks."""
    config, own = subject.config, subject.config.optimizer.schedule
    updates, rates = schedule_numbers(config, own)
    peak = int(np.argmax(rates))
    others: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in names_of("schedule") if config.optimizer.warmup_updates < config.training.num_updates else ():
        _, rates_of_other = schedule_numbers(config, name)
        shape = rates_of_other / rates_of_other.max()
        # Of two lines that coincide one would hide the other.
        equal = next((each for each, (_, found) in others.items() if np.allclose(found, shape, atol=1e-3)), "")
        others[f"{equal}, {name}" if equal else name] = others.pop(equal) if equal else (updates, shape)
    panels = [
        LinePanel(f"{subject.name}: {own}", {own: (updates, rates)}, "update", "learning rate", unlisted=(own,)),
        LinePanel("All schedules with this warm-up, over their peaks", others, "update", ""),
    ]
    draw_panels(panels[: 1 + bool(others)], path, title="Learning rate")
    return [
        f"{own}: peak {rates[peak]:.3e} at update {updates[peak]:,} (warm-up {config.optimizer.warmup_updates:,}), "
        f"{rates[0]:.1e} at the first, {rates[-1]:.1e} at the last of {config.training.num_updates:,}"
    ]


class SmoothingNumbers(NamedTuple):
    """Loss and its derivative in the logit of the label, with and without smoothing [2, N], by the label's ``probability`` [N].

    The other classes are equally probable. ``target`` [V] is the smoothed distribution of label 0.
    """

    probability: np.ndarray
    loss: np.ndarray
    gradient: np.ndarray
    target: np.ndarray


def smoothing_numbers(smoothing: float, classes: int = CLASSES) -> SmoothingNumbers:
    """The loss used in training, and its gradient, at logits that give the label a probability from 0.001 to 0.9999.

    The target is computed from the gradient, which is softmax(z) - q'.
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


def draw_smoothing(subject: Subject, path: Path) -> list[str]:
    """Draws target, loss and gradient for the smoothing of ``subject`` and a vocabulary of ``CLASSES``."""
    smoothing = subject.config.training.label_smoothing
    numbers = smoothing_numbers(smoothing)
    names = f"smoothing {smoothing:g}", "none"
    classes = np.arange(CLASSES)
    target = {names[0]: (classes, numbers.target), names[1]: (classes, (classes == 0).astype(float))}
    x = "probability that the model gives the label"
    zero = {"zero": (np.array([0, 1]), np.array([0, 0]))}
    losses, gradients = (
        {name: (numbers.probability, row) for name, row in zip(names, rows, strict=True)}
        for rows in (numbers.loss, numbers.gradient)
    )
    panels = [
        LinePanel(f"Target distribution, V = {CLASSES}", target, "class; the label is 0", "probability", marks="o"),
        LinePanel("Loss", losses, x, "nats"),
        LinePanel("Its derivative in the label's logit", gradients | zero, x, "", dotted=("zero",), unlisted=("zero",)),
    ]
    draw_panels(panels, path, title="Label smoothing")
    label, other = numbers.target[:2]
    best = numbers.probability[numbers.loss[0].argmin()]
    predicted = 1 - smoothing + smoothing / CLASSES
    return [
        f"smoothing {smoothing:g}, V = {CLASSES}: target {label:.4f} for the label, {other:.4f} for each other class",
        f"  lowest loss {numbers.loss[0].min():.4f} nats, at probability {best:.4f} of the label; "
        f"1 - eps + eps/V = {predicted:.4f}",
    ]
