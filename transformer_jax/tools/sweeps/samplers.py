"""Optuna's samplers and pruners by name."""

from collections.abc import Callable
from importlib.util import find_spec

from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler

from transformer_jax.config import ConfigError
from transformer_jax.tools.sweeps.definition import Sweep

MAKE_SAMPLER: dict[str, Callable[[], BaseSampler]] = {
    # Its trials are listed.
    "grid": RandomSampler,
    "random": RandomSampler,
    # Several workers choose at the same time: what others are still trying counts as poor, so that they try something else.
    "tpe": lambda: TPESampler(constant_liar=True),
    "cma-es": CmaEsSampler,
}
# By the updates between validations, and those of a whole trial.
MAKE_PRUNER: dict[str, Callable[[int, int], BasePruner]] = {
    "median": lambda every, whole: MedianPruner(n_startup_trials=4),
    "successive_halving": lambda every, whole: SuccessiveHalvingPruner(min_resource=every),
    "hyperband": lambda every, whole: HyperbandPruner(min_resource=every, max_resource=whole),
}


def make_sampler(sweep: Sweep) -> BaseSampler:
    """The sampler of the sweep.

    Raises ConfigError when its package is missing.
    """
    if sweep.sampler == "cma-es" and find_spec("cmaes") is None:
        raise ConfigError("sampler=cma-es: needs pip install cmaes")
    return MAKE_SAMPLER[sweep.sampler]()


def make_pruner(sweep: Sweep) -> BasePruner:
    """The pruner of the sweep."""
    if sweep.pruner == "none":
        return NopPruner()
    training = sweep.settings(sweep.points()[0]).training
    return MAKE_PRUNER[sweep.pruner](training.evaluate_every, training.num_updates)
