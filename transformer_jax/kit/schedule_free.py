"""Schedule-Free learning (Defazio et al. 2024, equations 2 to 4)."""

from dataclasses import dataclass
from typing import Any

import optax
from jax.typing import ArrayLike
from optax import contrib

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register, registered
from transformer_jax.training.optimizers import Averaging, MakeRule


@dataclass(frozen=True)
class ScheduleFreeSettings:
    interpolation: float = setting(0.9, "Share of the average in the parameters that are trained (beta).", at_most=1)

    def check_new_run(self, config: ExperimentConfig) -> None:
        names = config.optimizer.after_update_names
        others = [name for name in names if not registered("after_update")[name].not_trained]
        if others:
            problem = f"{others[0]} changes parameters that schedule_free computes from its state"
            raise ConfigError("optimizer.after_update", problem, "use another optimizer.averaging")


@register("averaging", "schedule_free", settings=ScheduleFreeSettings)
class ScheduleFree(Averaging):
    """Gradients between the iterate and its average, instead of momentum; use schedule=constant."""

    @staticmethod
    def averaged(
        settings: ScheduleFreeSettings, hyperparameters: Hyperparameters, make_rule: MakeRule, rate: ArrayLike
    ) -> optax.GradientTransformation:
        """Return the rule with b1 = 0.

        Lion takes the sign of the gradient, muon keeps its momentum.
        """
        return contrib.schedule_free(make_rule(hyperparameters._replace(b1=0.0)), rate, settings.interpolation)

    @staticmethod
    def evaluation_params(state: Any, params: PyTree) -> PyTree:
        """Return the average x of equation 4, from the trained y = (1 - beta) z + beta x."""
        return contrib.schedule_free_eval_params(state, params)
