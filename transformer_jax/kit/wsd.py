"""Warm-up, stable, decay (Hu et al. 2024, MiniCPM, section 4; Hägele et al. 2024, equation 1)."""

from dataclasses import dataclass
from typing import Any, Literal

from transformer_jax.array_types import AnyArray
from transformer_jax.config import Hyperparameters
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.schedules import Schedule, float32_step


@dataclass(frozen=True)
class WsdSettings:
    decay_share: float = setting(0.2, "Share of the updates with decay to 0.", at_most=1, program="traced")
    shape: Literal["root", "linear"] = setting("root", "Decay as 1 - sqrt(t), t from 0 to 1, or as a line.")


@register("schedule", "wsd", settings=WsdSettings)
def wsd(settings: WsdSettings, hyperparameters: Hyperparameters, d_model: int) -> Schedule:
    """Warm up to learning_rate, stay, then decay to 0 at the last update (Hu et al. 2024)."""

    def rate(step: AnyArray | int) -> Any:
        step, xp = float32_step(step)
        last = hyperparameters.num_updates
        decayed = xp.clip(1.0 - (last - step) / (last * settings.decay_share), 0.0, 1.0)
        left = 1.0 - (decayed**0.5 if settings.shape == "root" else decayed)
        return hyperparameters.learning_rate * xp.minimum(step / hyperparameters.warmup_updates, left)

    return rate


wsd.decays = True  # type: ignore[attr-defined]
