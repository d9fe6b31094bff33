"""nGPT: hidden states, queries, keys and rows of matrices of unit norm (Loshchilov et al. 2024)."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.array_types import AnyArray, Array, Hidden, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.kit.gated_linear_units import GatedFeedForward
from transformer_jax.kit.rope import RopeSettings, RotaryPositions
from transformer_jax.layers.embedding import LogitFactors, Projection
from transformer_jax.layers.residual import Residual
from transformer_jax.layers.site import Site
from transformer_jax.registry.plugins import register
from transformer_jax.training.sharding import path_of
from transformer_jax.training.statistics import AfterUpdate, Ratios

PARTS = ["model.positions", "model.normalization", "model.feed_forward", "model.projection", "optimizer.after_update"]
register("sharding", r"ngpt_\w+$")(PartitionSpec())


@dataclass(frozen=True)
class NgptSettings(RopeSettings):
    def check_new_run(self, config: ExperimentConfig) -> None:
        selected = {key for key, _, name in config.selections if name == "ngpt"}
        if missing := [f"{key}=ngpt" for key in PARTS if key not in selected]:
            raise ConfigError("model.positions", "ngpt is one of five parts of nGPT", f"set {' and '.join(missing)}")
        if config.optimizer.weight_decay or config.model.logits_bias:
            raise ConfigError("optimizer.weight_decay, model.logits_bias", "nGPT has none", "leave them out")


def unit(vectors: Array, axis: int = -1) -> Array:
    vectors = vectors.astype(jnp.float32)
    return vectors / jnp.sqrt(jnp.sum(vectors**2, axis=axis, keepdims=True) + 1e-12)


def learned(module: nn.Module, name: str, shape: tuple[int, ...], initial: float, scale: float) -> Array:
    """Return factors that are learned as if they were ``scale`` at first (section 2.5).

    Adam changes them more if that is small.
    """
    factors: Array = module.param(f"ngpt_{name}", nn.initializers.constant(scale), shape)
    return factors * (initial / scale)


@register("residual", "ngpt")
class NgptResidual(Residual):
    """Norm(h + |a| (Norm(Sublayer(h)) - h)), learned rates a (section 2.2.2)."""

    has_norm: ClassVar[bool] = False
    width: int = 0

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site, **options: Any) -> Residual:
        return cls(width=config.d_model, **options)

    def setup(self) -> None:
        super().setup()
        self.rates = learned(self, "rates", (self.width,), 0.05, self.width**-0.5)

    def after(self, x: Hidden, y: Hidden, *, train: bool) -> Hidden:
        start, end = unit(x), self.sublayer_dropout(unit(y), train=train)
        return unit(start + jnp.abs(self.rates)[None, None] * (end - start)).astype(x.dtype)


@register("positions", "ngpt", settings=NgptSettings)
class NgptPositions(RotaryPositions):
    """RoPE, and scores sqrt(K) (s Norm(q)) (s Norm(k)), learned s (section 2.3.2)."""

    @classmethod
    def is_at(cls, site: Site) -> bool:
        return site.kind in ("self", "cross")

    def setup(self) -> None:
        self.factors = learned(self, "factors", (self.num_heads, self.key_size), 1.0, self.d_model**-0.5)

    def queries(self, query_BHQK: Array, positions: AnyArray) -> Array:
        # Every backend divides by sqrt(K).
        return self.keys(query_BHQK, positions) * self.key_size

    def keys(self, key_BGMK: Array, positions: AnyArray) -> Array:
        rotated = super().keys(key_BGMK, positions) if self.site.kind == "self" else key_BGMK
        return (unit(rotated) * self.factors[None, :, None]).astype(key_BGMK.dtype)


class ScaledSilu(nn.Module):
    d_model: int

    @nn.compact
    def __call__(self, gate: Array) -> Array:
        of_gate, of_wide = (learned(self, name, gate.shape[-1:], 1.0, 1.0)[None, None] for name in ("gate", "wide"))
        return (of_wide * jax.nn.silu(gate.astype(jnp.float32) * of_gate * self.d_model**0.5)).astype(gate.dtype)


@register("feed_forward", "ngpt")
def ngpt_feed_forward(settings: Any, config: Any, site: Site, **options: Any) -> GatedFeedForward:
    """(SiLU(s_v sqrt(D) h V) * s_u h U) W, without biases (section 2.4.2)."""
    return GatedFeedForward(config.d_ff, ScaledSilu(config.d_model), **options)


@register("projection", "ngpt")
class NgptProjection(Projection):
    """s E h, with learned factors s of the logits (section 2.1)."""

    keeps_hidden = True

    def setup(self) -> None:
        self.scales = learned(self, "scales", (self.embedding.vocabulary_size,), 1.0, self.config.d_model**-0.5)

    def factors(self, hidden: Hidden) -> LogitFactors:
        factors = self.embedding.factors(hidden)
        return factors._replace(matrix=factors.matrix * self.scales[:, None])


@register("after_update", "ngpt")
class UnitNorm(AfterUpdate):
    """Vectors of length D in all matrices have unit norm, from the start on (section 2.6)."""

    def initial_params(self, params: PyTree) -> PyTree:
        def projected(key_path: tuple, leaf: Array) -> Array:
            path = path_of(key_path)
            if re.search(r"attention/(query|key|value)$|(wide|gate)_kernel$", path):
                return unit(leaf, 0)
            return unit(leaf) if re.search(r"attention/output$|narrow_kernel$|table$", path) else leaf

        return jax.tree_util.tree_map_with_path(projected, params)

    def after_update(self, params: PyTree, statistics: Ratios) -> PyTree:
        return self.initial_params(params)
