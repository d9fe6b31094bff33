"""The learning rate of a recipe (Vaswani et al. 2017, section 5.3)."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.config import ExperimentConfig, hyperparameters_of
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.pictures.subject import Subject
from transformer_jax.training.schedules import SCHEDULES, make_schedule

POINTS = 1000


class ScheduleNumbers(NamedTuple):
    """The learning ``rate`` [N] at ``updates`` [N], counted from 1."""

    updates: np.ndarray
    rate: np.ndarray

    @property
    def peak(self) -> tuple[int, float]:
        """The first update with the largest rate, and that rate."""
        at = int(np.argmax(self.rate))
        return int(self.updates[at]), float(self.rate[at])


def schedule_numbers(config: ExperimentConfig, name: str = "") -> ScheduleNumbers:
    """The rates of the schedule of ``config``, or of the one called ``name`` with the same settings."""
    last, warmup = config.training.num_updates, config.optimizer.warmup_updates
    updates = np.unique(np.append(np.linspace(1, last, POINTS).astype(np.int64), min(warmup, last)))
    schedule = make_schedule(name or config.optimizer.schedule, hyperparameters_of(config), config.model.d_model)
    return ScheduleNumbers(updates, np.asarray(schedule(updates)))


def make(subject: Subject, path: Path) -> list[str]:
    """Draws the schedule, and with their peaks at the same height the others that could stand in its place."""
    config = subject.config
    numbers = schedule_numbers(config)
    update, rate = numbers.peak
    others = {}
    for name in SCHEDULES if config.optimizer.warmup_updates < config.training.num_updates else ():
        other = schedule_numbers(config, name)
        others[name] = (other.updates, other.rate / other.rate.max())
    panels = [
        LinePanel(f"{subject.name}: {config.optimizer.schedule}", {"_": tuple(numbers)}, "update", "learning rate"),
        LinePanel("All schedules with this warm-up, over their peaks", others, "update", ""),
    ]
    draw_panels(panels[: 1 + bool(others)], path, title="Learning rate")
    return [
        f"{config.optimizer.schedule}: peak {rate:.3e} at update {update:,} (warm-up {config.optimizer.warmup_updates:,}), "
        f"{numbers.rate[0]:.1e} at the first, {numbers.rate[-1]:.1e} at the last of {config.training.num_updates:,}"
    ]
