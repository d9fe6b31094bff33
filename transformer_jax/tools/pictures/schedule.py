"""Figure of the learning rate (Vaswani et al. 2017, section 5.3)."""

from pathlib import Path

import numpy as np

from transformer_jax.config import ExperimentConfig, hyperparameters_of
from transformer_jax.registry.plugins import names_of, settings_class
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.training.schedules import make_schedule

POINTS = 1000


def schedule_numbers(config: ExperimentConfig, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return updates [N] from 1 and rates [N] of a schedule, with settings of ``config``."""
    last, warmup = config.training.num_updates, config.optimizer.warmup_updates
    updates = np.unique(np.append(np.linspace(1, last, POINTS).astype(np.int64), min(warmup, last)))
    settings = settings_class("schedule", name)
    parts = config.parts if settings is None or name in config.parts else {name: settings()}
    schedule = make_schedule(name, hyperparameters_of(config), config.model.d_model, parts)
    return updates, np.asarray(schedule(updates))


def draw_schedule(config: ExperimentConfig, source: str, path: Path) -> str:
    """Draw the schedule of ``source``, and all schedules relative to their peaks.

    Returns the numbers of the first.
    """
    selected = config.optimizer.schedule
    updates, rates = schedule_numbers(config, selected)
    peak = int(np.argmax(rates))
    others: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in names_of("schedule") if config.optimizer.warmup_updates < config.training.num_updates else ():
        _, rates_of_other = schedule_numbers(config, name)
        shape = rates_of_other / rates_of_other.max()
        # Of two lines that coincide one would hide the other.
        equal = next((other for other, (_, line) in others.items() if np.allclose(line, shape, atol=1e-3)), "")
        others[f"{equal}, {name}" if equal else name] = others.pop(equal) if equal else (updates, shape)
    panels = [
        LinePanel(
            f"{source}: {selected}", {selected: (updates, rates)}, "update", "learning rate", unlisted=(selected,)
        ),
        LinePanel("All schedules with this warm-up, over their peaks", others, "update", ""),
    ]
    draw_panels(panels[: 1 + bool(others)], path, title="Learning rate")
    return (
        f"{selected}: peak {rates[peak]:.3e} at update {updates[peak]:,} (warm-up {config.optimizer.warmup_updates:,}), "
        f"{rates[0]:.1e} at the first, {rates[-1]:.1e} at the last of {config.training.num_updates:,}"
    )
