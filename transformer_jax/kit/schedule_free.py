"""Schedule-Free learning (Defazio et al. 2024, equations 2 to 4)."""

from dataclasses import dataclass
from typing import Any

import optax
from optax import contrib

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import Hyperparameters
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.optimizers import Averaging, MakeRule


@dataclass(frozen=True)
class ScheduleFreeSettings:
    interpolation: float = setting(0.9, "Share of the average in the parameters that are trained (beta).", at_most=1)


@register("averaging", "schedule_free", settings=ScheduleFreeSettings)
class ScheduleFree(Averaging):
    """Gradients between the iterate and its average, instead of momentum; use schedule=constant (Defazio et al. 2024)."""

    @staticmethod
    def averaged(
        settings: ScheduleFreeSettings, hyperparameters: Hyperparameters, make_rule: MakeRule, rate: Array | float
    ) -> optax.GradientTransformation:
        """See ``Averaging``. Sets optimizer.b1 to 0: lion takes the sign of the gradient; the momentum of muon stays."""
        rule = make_rule(hyperparameters._replace(b1=0.0))
        found: optax.GradientTransformation = contrib.schedule_free(rule, rate, settings.interpolation)
        return found

    @staticmethod
    def evaluation_params(state: Any, params: PyTree) -> PyTree:
        """The average x of equation 4, from the trained y = (1 - beta) z + beta x."""
        average: PyTree = contrib.schedule_free_eval_params(state, params)
        return average
