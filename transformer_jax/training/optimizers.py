"""Update rules, all of them optax's."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import optax
from jax.typing import ArrayLike

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError, Hyperparameters
from transformer_jax.registry.plugins import register, registered, with_settings
from transformer_jax.training.schedules import Schedule
from transformer_jax.training.sharding import path_of

# By the last part of their path, not by their axes: biases of heads and gates have two.
VECTORS = r"(bias|scale|gain|vector)$"
# In changes of attention only kernels decay: distances and mixtures of heads are no projections.
# Hyper-connections without input begin as the identity (Zhu et al. 2024).
NEVER_DECAYED = rf"{VECTORS}|biases$|(^|/)changes_.*(?<!kernel)$|_residual/alpha$"
# optax's 128 would not factor kernels of attention [D, H, K], whose second largest axis, a head,
# has 64.
SMALLEST_FACTORED = 32
# Their optimizer state has an (empty) entry for weight decay even at 0: saved runs have it.
ALWAYS_DECAYED = ("adamw", "adafactor")


@register("optimizer", "adam")
@register("optimizer", "adamw")
def adam(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    """Return Adam (Kingma and Ba 2015); adamw has decoupled decay (Loshchilov and Hutter 2019)."""
    return [optax.scale_by_adam(hyperparameters.b1, hyperparameters.b2, hyperparameters.epsilon)]


@register("optimizer", "adafactor")
def adafactor(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    """Return Adafactor (Shazeer and Stern 2018); kernels of attention are factored head by head."""
    factored = optax.scale_by_factored_rms(min_dim_size_to_factor=SMALLEST_FACTORED)
    return [factored, optax.clip_by_block_rms(1.0), optax.scale_by_param_block_rms()]


@register("optimizer", "sgd")
def sgd(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    """Return the gradient itself."""
    return []


@register("optimizer", "adagrad")
def adagrad(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    """Return Adagrad (Duchi et al. 2011, figure 1).

    Accumulators begin at 0, as any other start outweighs the gradients, which are means over
    tokens. optax adds ``eps`` below the root and the figure delta outside it.
    """
    return [optax.scale_by_rss(initial_accumulator_value=0.0, eps=hyperparameters.epsilon**2)]


MakeRule = Callable[[Hyperparameters], optax.GradientTransformation]


class Averaging(ABC):
    """An average of the parameters over updates: the base of parts of kind ``averaging``."""

    @staticmethod
    @abstractmethod
    def averaged(
        settings: Any, hyperparameters: Hyperparameters, make_rule: MakeRule, rate: ArrayLike
    ) -> optax.GradientTransformation:
        """Return the update of ``make_rule(hyperparameters)``, with the average in its state."""

    @staticmethod
    @abstractmethod
    def evaluation_params(state: Any, params: PyTree) -> PyTree:
        """Return the average, from the state of ``averaged`` and the trained parameters."""


def make_optimizer(
    name: str,
    hyperparameters: Hyperparameters,
    schedule: Schedule,
    step: Array | int,
    parts: Mapping[str, Any] = MappingProxyType({}),
    averaging: str = "none",
) -> optax.GradientTransformation:
    """Return clipping by global norm, the rule ``name``, weight decay, and the learning rate.

    The rate belongs to the update after ``step``. Rules get no weight decay: it is added behind
    them, as in adamw. Adafactor multiplies its rate with the parameter's scale, so its
    ``learning_rate`` is relative. ``parts``: the settings of parts.
    """

    def make_rule(hyperparameters: Hyperparameters) -> optax.GradientTransformation:
        clipping = [] if hyperparameters.clip_norm is None else [optax.clip_by_global_norm(hyperparameters.clip_norm)]
        rule = _rule(name, hyperparameters, parts)
        # Not by optax's own count, which stands still on a skipped update.
        return optax.chain(*clipping, *rule, optax.scale_by_learning_rate(lambda _: schedule(step + 1)))

    if averaging == "none":
        return make_rule(hyperparameters)
    part: type[Averaging] = registered("averaging")[averaging]
    return part.averaged(parts.get(averaging), hyperparameters, make_rule, schedule(step + 1))


def _rule(name: str, hyperparameters: Hyperparameters, parts: Mapping[str, Any]) -> list[optax.GradientTransformation]:
    rule = with_settings("optimizer", name, parts)(hyperparameters._replace(weight_decay=None))
    if isinstance(rule, optax.GradientTransformation):
        raise ConfigError(
            f"optimizer.name={name}", "the part returns one transformation", "return a list, [transformation]"
        )
    decay = hyperparameters.weight_decay
    if decay is None and name not in ALWAYS_DECAYED:
        return list(rule)
    return [*rule, optax.add_decayed_weights(0.0 if decay is None else decay, mask=_is_decayed)]


def _is_decayed(params: PyTree) -> PyTree:
    """Return True for kernels and embeddings, as in BERT and GPT-2, not for vectors.

    In an ``AttentionChange`` only parameters whose names end in ``kernel`` decay, and in
    hyper-connections only the product with the streams.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf.ndim > 1 and not re.search(NEVER_DECAYED, path_of(path)), params
    )
