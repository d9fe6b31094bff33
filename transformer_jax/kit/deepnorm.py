"""DeepNorm: residual connections and initialization of deep post-norm stacks (Wang et al. 2022)."""

import re
from typing import Any, ClassVar

import jax.numpy as jnp

from transformer_jax.array_types import Hidden
from transformer_jax.layers.residual import Residual, residual_sum
from transformer_jax.layers.site import Site
from transformer_jax.registry.plugins import register

SCALED = r"attention/(value|output)$|feed_forward/((wide|gate|narrow)_kernel|experts_\w+)$"


def factors(config: Any, stack: str) -> tuple[float, float]:
    """Return alpha of the residual connection and beta of the initialization (figure 2)."""
    if config.kind == "decoder_only":
        return (2 * config.num_layers) ** 0.25, (8 * config.num_layers) ** -0.25
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    if stack == "decoder":
        return (3 * decoder) ** 0.25, (12 * decoder) ** -0.25
    return 0.81 * (encoder**4 * decoder) ** (1 / 16), 0.87 * (encoder**4 * decoder) ** (-1 / 16)


@register("residual", "deepnorm")
class DeepNormResidual(Residual):
    """Norm(alpha x + Dropout(Sublayer(x))), alpha by depth; with model.initialization=deepnorm."""

    alpha: float = 1.0
    residual_dtype: ClassVar[str | None] = None

    @classmethod
    def of(cls, settings: None, config: Any, site: Site, **options: Any) -> Residual:
        return cls(alpha=factors(config, site.stack)[0], **options)

    def after(self, x: Hidden, y: Hidden, *, train: bool) -> Hidden:
        scaled = self.alpha * x.astype(jnp.float32)
        return self.norm(residual_sum(scaled, y, self.sublayer_dropout, train=train))


@register("initialization", "deepnorm")
def deepnorm(settings: None, config: Any, site: Site, path: str) -> float:
    """Scale values, outputs of attention and feed-forward kernels by beta, smaller in deep stacks.

    The paper has no gates. ``gate_kernel`` is scaled like ``wide_kernel``.
    """
    return factors(config, site.stack)[1] if re.search(SCALED, path) else 1.0
