"""Hyper-connections: several residual streams with learned connections (Zhu et al. 2024)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.array_types import Array, Float, Hidden, TokenIds
from transformer_jax.config.checks import setting
from transformer_jax.layers.residual import Residual
from transformer_jax.layers.site import Site
from transformer_jax.precision import einsum, rounding_barrier
from transformer_jax.registry.plugins import register

register("sharding", r"_residual/(alpha|beta|connection|scales)$")(PartitionSpec())


@dataclass(frozen=True)
class HyperConnectionsSettings:
    streams: int = setting(4, "Number of residual streams N.")
    dynamic: bool = setting(True, "Connections depend on the token (DHC), not only on the sublayer (SHC).")


@register("residual", "hyper_connections", settings=HyperConnectionsSettings)
class HyperConnections(Residual):
    """A_r^T H + B^T Dropout(Sublayer(Norm(A_m^T H))) of N streams H, summed at the end.

    Equations 2 and 10 to 13: connections are ``alpha`` [N, 1 + N], A_m and A_r, and ``beta`` [N],
    and if dynamic they get ``scales`` times the tanh of a product of the normed streams with
    ``connection`` [D, 2 + N]. They begin as pre-norm, with sublayer k reading stream k mod N
    (equation 14). Departure: the initial scale of output kernels does not depend on N.
    """

    width: int = 0
    settings: Any = None
    first_read: int = 0
    has_final_norm: ClassVar[bool] = True

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site, **options: Any) -> Residual:
        kinds = ["self", "cross", "feed_forward"]
        if site.stack == "encoder" or config.kind == "decoder_only":
            kinds.remove("cross")
        first_read = (len(kinds) * (site.index or 0) + kinds.index(site.kind)) % settings.streams
        return cls(width=config.d_model, settings=settings, first_read=first_read, **options)

    def setup(self) -> None:
        super().setup()
        count = self.settings.streams
        read = jax.nn.one_hot(jnp.array([self.first_read]), count).T
        self.alpha = self.param("alpha", lambda _: jnp.concatenate([read, jnp.eye(count)], axis=1))
        self.beta = self.param("beta", nn.initializers.ones, (count,))
        if self.settings.dynamic:
            self.stream_norm = self.make_norm()
            self.connection = self.param("connection", nn.initializers.zeros, (self.width, 2 + count))
            self.scales = self.param("scales", nn.initializers.constant(0.01), (2,))

    def enter(self, x: Hidden, token_ids: TokenIds) -> Float[Array, "B L N D"]:
        return jnp.broadcast_to(x[:, :, None], (*x.shape[:2], self.settings.streams, x.shape[2]))

    def leave(self, x: Float[Array, "B L N D"]) -> Hidden:
        return jnp.sum(x, axis=2)

    def before(self, x: Float[Array, "B L N D"]) -> Hidden:
        read = self._connections(x)[0][..., 0]
        return self.norm(jnp.sum(read[..., None] * x, axis=2).astype(x.dtype))

    def after(self, x: Float[Array, "B L N D"], y: Hidden, *, train: bool) -> Float[Array, "B L N D"]:
        alpha, beta = self._connections(x)
        dropped = self.sublayer_dropout(rounding_barrier(y).astype(jnp.float32), train=train)
        mixed = jnp.einsum("BLNM,BLND->BLMD", alpha[..., 1:], x.astype(jnp.float32))
        return rounding_barrier((mixed + beta[..., None] * dropped[:, :, None]).astype(x.dtype))

    def _connections(self, x: Float[Array, "B L N D"]) -> tuple[Float[Array, "#B #L N E"], Float[Array, "#B #L N"]]:
        """Return A_m and A_r [..., N, 1 + N], and B [..., N]."""
        alpha, beta = self.alpha[None, None], self.beta[None, None]
        if not self.settings.dynamic:
            return alpha, beta
        normed = self.stream_norm(x).astype(jnp.float32)
        change = jnp.tanh(einsum("BLND,DE->BLNE", normed, self.connection))
        return alpha + self.scales[0] * change[..., 1:], beta + self.scales[1] * change[..., 0]
