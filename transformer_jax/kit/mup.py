"""Maximal update parametrization: a rate for narrow and wide models (Yang et al. 2022, table 3)."""

import re
from dataclasses import dataclass
from typing import Any

import jax
import optax

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters
from transformer_jax.config.checks import setting
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.site import Site
from transformer_jax.registry.plugins import register
from transformer_jax.training.sharding import path_of

TABLE = (
    # Output weights, also to a fixed number of experts or streams, which start at width^-1/2.
    (r"projection/(embedding/)*table$|router_kernel$|_residual/connection$", -0.5, -1.0),
    # Input weights, read times width^1/2, which start at width^-1/2.
    (r"embedding/table$", 0.0, -0.5),
    # Tables that are read as they are, which start at width^-1/2.
    (r"positions/(table|biases)$|shaw/relative$", 0.5, 0.0),
    (r"attention/(query|key|value|output|output_gate)$|_kernel$|experts_\w+$", 0.0, -1.0),  # Hidden weights.
    (r"", 0.0, 0.0),  # Norms, biases, and all other parameters.
)
"""Paths, and exponents of width / base_width in the initial value and in Adam's learning rate."""


@dataclass(frozen=True)
class MupSettings:
    """At the base sizes nothing changes. d_ff and heads, also of keys, must grow with d_model."""

    base_width: int = setting(128, "model.d_model of the model that was tuned.")
    base_key_size: int = setting(64, "Size of its heads.")

    def check_new_run(self, config: ExperimentConfig) -> None:
        model, heads = config.model, self.base_width // self.base_key_size
        attention = [selection.name for selection in config.selections if selection.kind == "attention"]
        if ("model.initialization", "initialization", "mup") not in config.selections:
            raise ConfigError("optimizer.name", "mup needs a Transformer with model.initialization=mup")

        def problem_of_attention() -> str:
            if "mup" not in attention and model.head_key_size != self.base_key_size:
                size = f"{model.head_key_size}, not parts.mup.base_key_size={self.base_key_size}"
                return f"optimizer.name=mup needs mup here too: the size of a head is {size}"
            if "mup" in attention and "qk_norm" in attention[attention.index("mup") :]:
                return "qk_norm erases the factor of mup; put mup after it"
            if "latent" in attention:
                return "mup does not scale the latent projection; use another attention"
            for name, fixed in (("talking_heads", "the mixtures"), ("multi_query", "the single key head")):
                if name in attention and model.num_heads != heads:
                    there = f"use {heads} heads as at the base width, or leave it out"
                    return f"mup does not scale {fixed} of {name}; {there}"
            if "grouped_query" in attention and config.parts["grouped_query"].key_value_heads * heads < model.num_heads:
                few = "has too few parts.grouped_query.key_value_heads for mup"
                return f"{few}, which needs one for every {heads} heads"
            return ""

        if problem := problem_of_attention():
            raise ConfigError("model.attention", problem)
        if model.tying in ("all", "output"):
            problem = f"mup has other output weights than embeddings, not {model.tying}"
            raise ConfigError("model.tying", problem, "use none")
        if model.embedding != "scaled":
            raise ConfigError("model.embedding", f"mup needs scaled, not {model.embedding}")
        if config.optimizer.schedule == "noam":
            problem = "noam falls with the width, as the rates of mup do; use another, such as cosine"
            raise ConfigError("optimizer.schedule", problem)


def exponents(path: str) -> tuple[float, float]:
    """Return the exponents of the initial value and of the rate of a parameter."""
    return next(row[1:] for row in TABLE if re.search(row[0], path))


@register("optimizer", "mup", settings=MupSettings)
def adam(settings: MupSettings, hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    """Adam with a learning rate by kind of parameter; use another schedule than noam.

    model.initialization=mup and, if heads grow, model.attention=mup have the rest of the table.
    Decoupled weight decay is the same at all widths.
    """

    def scaled(key_path: tuple, update: AnyArray) -> AnyArray:
        path = path_of(key_path)
        # The axis of the inputs: of [H, K, D], [F, D], [V, D]; of [E, D, F]; of [D, H, K], [D, F].
        axis = -1 if re.search(r"(output|narrow\w*|table)$", path) else 1 if "experts" in path else 0
        width = update.shape[axis] if update.ndim > 1 else settings.base_width
        return update * (width / settings.base_width) ** exponents(path)[1]

    rates = optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(scaled, updates))
    return [optax.scale_by_adam(hyperparameters.b1, hyperparameters.b2, hyperparameters.epsilon), rates]


@register("initialization", "mup")
def initial(settings: MupSettings | None, config: Any, site: Site, path: str) -> float:
    """Start with smaller output weights, for optimizer.name=mup and an untied output."""
    if settings is None:
        raise ConfigError("model.initialization", "mup needs optimizer.name=mup")
    ratio: float = config.d_model / settings.base_width
    if path.endswith("shaw/relative"):  # As wide as a head.
        ratio = config.head_key_size / settings.base_key_size
    return ratio ** exponents(path)[0]


@register("attention", "mup")
class MupAttention(AttentionChange):
    """Scores q k / K instead of q k / sqrt(K), equal at the base size (definition 4.1)."""

    def queries(self, query_BHQK: Float[Array, "B H Q K"], positions: Int[AnyArray, "B Q"]) -> Float[Array, "B H Q K"]:
        if self.settings is None:
            raise ConfigError("model.attention", "mup needs optimizer.name=mup")
        return query_BHQK * (self.settings.base_key_size / self.key_size) ** 0.5
