"""Muon: orthogonalized momentum for matrices (Jordan et al. 2024; Liu et al. 2025)."""

import re
from dataclasses import dataclass

import jax
import optax
from optax.contrib import MuonDimensionNumbers, muon

from transformer_jax.array_types import AnyArray, PyTree
from transformer_jax.config import Hyperparameters
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.sharding import path_of


@dataclass(frozen=True)
class MuonSettings:
    """Settings for matrices. Adam uses the settings of the optimizer, with Nesterov momentum."""

    beta: float = setting(0.95, "Decay of the momentum.", at_least=0, below=1, program="traced")
    iterations: int = setting(5, "Newton-Schulz iterations of an update.")
    rms: float = setting(0.2, "Root mean square of an update per learning rate, about Adam's.", program="traced")


@register("optimizer", "muon", settings=MuonSettings)
def orthogonalized(settings: MuonSettings, hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    """Orthogonalize the momentum of kernels; Adam for embeddings, norms and biases.

    The momentum is a moving average with a correction of its bias, as in optax. In the paper it is
    a sum without one, and the orthogonalization removes the difference in scale.
    """
    rule = muon(
        1.0,
        ns_steps=settings.iterations,
        beta=settings.beta,
        eps=hyperparameters.epsilon,
        adam_b1=hyperparameters.b1,
        adam_b2=hyperparameters.b2,
        muon_weight_dimension_numbers=matrices,
        consistent_rms=settings.rms,
    )
    # muon ends with a descent by its rate 1. The rate of the schedule, which descends, follows.
    return [rule, optax.scale(-1.0)]


def matrices(params: PyTree) -> PyTree:
    """Return the axes of rows and columns of kernels, and None for other parameters.

    Kernels of attention [D, H, K] and [H, K, D] are matrices [D, H K] and [H K, D]. Every expert
    and every recurrent gate is a matrix.
    """

    def axes(path: tuple, leaf: AnyArray) -> MuonDimensionNumbers | None:
        name = path_of(path)
        for pattern, rows, columns in (
            (r"attention/(query|key|value|output_gate|.*(gate|rotary_query)_kernel)$", 0, (1, 2)),
            (r"attention/output$", (0, 1), 2),
            (r"experts_(wide|narrow)$", 1, 2),
            (r"kernel$", 0, leaf.ndim - 1),
        ):
            if leaf.ndim > 1 and re.search(pattern, name):
                return MuonDimensionNumbers(rows, columns)
        return None

    return jax.tree_util.tree_map_with_path(axes, params)
