"""Attention over sequences whose positions are split between devices."""

from dataclasses import dataclass
from functools import partial

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array
from transformer_jax.layers.attention_backends import AttentionBackend
from transformer_jax.layers.batch_axes import ROW_AXES, splits
from transformer_jax.layers.dropout import Drops
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.precision import Precision

BY_POSITION = P(ROW_AXES, "tensor", "context")
BY_HEAD = P(ROW_AXES, ("tensor", "context"))
WHOLE = P(ROW_AXES, "tensor")


@dataclass(frozen=True)
class AllToAllAttention:
    """Each device attends with some of the heads over whole sequences (Jacobs et al. 2023, DeepSpeed-Ulysses, section 3.1).

    Queries, keys and values [B, H, L, K] arrive split by positions; all-to-alls turn them by heads for ``backend``, and
    another one turns its output back. Devices along ``context`` and ``tensor`` together divide the heads.
    """

    backend: AttentionBackend
    mesh: Mesh

    def __call__(
        self, query: Array, key: Array, value: Array, mask: SentenceMask, *, drops: Drops | None, precision: Precision
    ) -> Array:
        """See ``AttentionBackend``."""
        query, key, value = (self._by_head(each) for each in (query, key, value))
        heads = self.backend(query, key, value, mask, drops=drops, precision=precision)
        if splits(heads.shape[2], self.mesh):
            return self._exchanged(heads, (2, 1), (BY_HEAD, BY_POSITION))
        return self._placed(heads, WHOLE)

    def _by_head(self, array: Array) -> Array:
        if splits(array.shape[2], self.mesh):
            return self._exchanged(array, (1, 2), (BY_POSITION, BY_HEAD))
        return self._placed(array, BY_HEAD)

    def _exchanged(self, array: Array, axes: tuple[int, int], specs: tuple[P, P]) -> Array:
        """Splits the first of ``axes`` instead of the second; left to itself the compiler gathers both."""
        exchange = partial(lax.all_to_all, axis_name="context", split_axis=axes[0], concat_axis=axes[1], tiled=True)
        return jax.shard_map(exchange, mesh=self.mesh, in_specs=specs[0], out_specs=specs[1])(array)

    def _placed(self, array: Array, spec: P) -> Array:
        return lax.with_sharding_constraint(array, NamedSharding(self.mesh, spec))
