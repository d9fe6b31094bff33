"""Mixers: recurrences over a sentence instead of causal self-attention, with a state a beam."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.layers.attention import LayerCache, StepMask
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.part_shapes import require_shape
from transformer_jax.layers.site import Site
from transformer_jax.precision import FLOAT32, Precision


class Mixer(nn.Module):
    """A recurrence with the interface of ``MultiHeadAttention``.

    A subclass has ``state_shape``, ``run`` and ``advance``, and creates its parameters in
    ``setup``. ``settings``: the settings dataclass that the part was registered with.
    """

    num_heads: int
    key_size: int
    value_size: int
    d_model: int
    site: Site
    settings: Any = None
    precision: Precision = FLOAT32

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site, precision: Precision) -> "Mixer":
        sizes = config.num_heads, config.head_key_size, config.head_value_size, config.d_model
        return cls(*sizes, site, settings, precision)

    @property
    def state_shape(self) -> tuple[int, ...]:
        """The shape of the state of a sentence, float32 and initially 0."""
        raise NotImplementedError

    def run(self, inputs: Float[Array, "B L D"], segments: Int[Array, "B L"]) -> tuple[Array, Array]:
        """Return the outputs [B, L, D] of whole rows, and the last state [B, ...].

        The state is 0 before the sentences of a row and on padding, segment 0.
        """
        raise NotImplementedError

    def advance(self, inputs: Float[Array, "B W D"], states: Float[Array, "B W ..."]) -> tuple[Array, Array]:
        """Return the outputs [B, W, D] of one more position a beam, and the next states."""
        raise NotImplementedError

    def __call__(
        self, queries: Float[Array, "B L D"], memory: Float[Array, "B L D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B L D"]:
        return self._run(queries, mask)[0]

    def empty_cache(self, rows: int, num_slots: int, beams: int) -> LayerCache:
        return LayerCache((), jnp.zeros((rows, beams, *self.state_shape)))

    def prefill(self, inputs: Float[Array, "B P D"], mask: SentenceMask, cache: LayerCache) -> LayerCache:
        return cache._replace(per_beam=jnp.broadcast_to(self._run(inputs, mask)[1][:, None], cache.per_beam.shape))

    def step(
        self, inputs: Float[Array, "B W D"], cache: LayerCache, mask: StepMask
    ) -> tuple[Float[Array, "B W D"], LayerCache]:
        outputs, states = self.advance(inputs, cache.per_beam)
        require_shape(outputs, inputs.shape, "B, W, D", type(self).advance)
        require_shape(states, cache.per_beam.shape, "B, W, ...", type(self).advance)
        return outputs, cache._replace(per_beam=states)

    def _run(self, inputs: Float[Array, "B L D"], mask: SentenceMask) -> tuple[Array, Array]:
        outputs, state = self.run(inputs, jnp.asarray(mask.query_segments))
        require_shape(outputs, inputs.shape, "B, L, D", type(self).run)
        require_shape(state, (len(inputs), *self.state_shape), "B, ...", type(self).run)
        return outputs, state


def linear_recurrence(
    decay: Float[Array, "B L ..."], update: Float[Array, "B L ..."], segments: Int[Array, "B L"]
) -> Float[Array, "B L ..."]:
    """Return h_t = decay_t h_{t-1} + update_t over axis 1, in parallel.

    ``h`` is 0 before a sentence and on padding. ``decay`` broadcasts to ``update``.
    """

    def of_rank(rows: Array, rank: int) -> Array:
        return jnp.expand_dims(rows, tuple(range(2, rank)))

    def joined(earlier: tuple[Array, Array], later: tuple[Array, Array]) -> tuple[Array, Array]:
        return earlier[0] * later[0], later[0] * earlier[1] + later[1]

    is_token = segments != 0
    continues = is_token & (segments == jnp.pad(segments[:, :-1], ((0, 0), (1, 0))))
    decay = jnp.where(of_rank(continues, decay.ndim), decay, 0.0)
    update = jnp.where(of_rank(is_token, update.ndim), update, 0.0)
    return lax.associative_scan(joined, (decay, update), axis=1)[1]
