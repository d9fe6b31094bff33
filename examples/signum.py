"""An optimizer and a schedule: the sign of a momentum, at a rate that falls in steps.

transformer-jax train --plugin=examples/signum.py --config=quickstart \
    --config.optimizer.name=signum --config.optimizer.schedule=steps \
    --config.optimizer.learning_rate=3e-4 --workdir=runs/signum
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

import transformer_jax
from transformer_jax.config import setting


@dataclass(frozen=True)
class SignumSettings:
    momentum: float = setting(0.9, "Decay of the momentum.", at_least=0, below=1, program="traced")


@transformer_jax.register("optimizer", "signum", settings=SignumSettings)
def signum(settings, hyperparameters):
    """Return the sign of a momentum (Bernstein et al. 2018, algorithm 2)."""
    momentum = optax.ema(settings.momentum, debias=False)
    return [momentum, optax.stateless(lambda updates, params: jax.tree.map(jnp.sign, updates))]


@dataclass(frozen=True)
class StepsSettings:
    factor: float = setting(0.3, "Factor of each step.", at_most=1, program="traced")
    count: int = setting(3, "Number of steps, at equal intervals.")


@transformer_jax.register("schedule", "steps", settings=StepsSettings)
def steps(settings, hyperparameters, d_model):
    """Warm up linearly to learning_rate, then multiply by a factor after each interval."""

    def rate(step):
        interval = hyperparameters.num_updates / (settings.count + 1)
        warmup = jnp.minimum(step / hyperparameters.warmup_updates, 1.0)
        return hyperparameters.learning_rate * warmup * settings.factor ** jnp.floor((step - 1) / interval)

    return rate


steps.decays = True
