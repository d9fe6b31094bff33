"""The layers of the Transformer (Vaswani et al. 2017, section 3.1)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import flax.linen as nn

from transformer_jax.array_types import Array, Float, Hidden, PyTree, TokenIds
from transformer_jax.layers.attention import KVCache, LayerCache, MultiHeadAttention, StepMask
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.residual import Residual
from transformer_jax.layers.site import Site

if TYPE_CHECKING:
    from transformer_jax.layers.mixer import Mixer


class LayerParts(NamedTuple):
    """Makers of the parts of a layer, from the site of the part.

    ``constrain`` is a sharding constraint on the hidden states [B, L, D] between the parts, and
    ``residual_dtype`` is their type between layers.
    """

    self_attention: Callable[[Site], "MultiHeadAttention | Mixer"]
    cross_attention: Callable[[Site], MultiHeadAttention]
    feed_forward: Callable[[Site], nn.Module]
    residual: Callable[[Site], Residual]
    final_norm: Callable[[Site], Callable[[Hidden], Hidden]]
    constrain: Callable[[Hidden], Hidden]
    residual_dtype: str


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    parts: LayerParts
    site: Site

    def setup(self) -> None:
        self.self_attention = self.parts.self_attention(self.site)
        self.self_attention_residual = self.parts.residual(self.site)
        self.feed_forward = self.parts.feed_forward(self.site.of("feed_forward"))
        self.feed_forward_residual = self.parts.residual(self.site.of("feed_forward"))

    def __call__(self, x: Hidden, mask: SentenceMask, *, train: bool) -> Hidden:
        constrain, residual = self.parts.constrain, self.self_attention_residual
        inputs = residual.before(x)
        x = constrain(residual.after(x, self.self_attention(inputs, inputs, mask, train=train), train=train))
        return constrain(self._feed_forward(x, train=train))

    def _feed_forward(self, x: Hidden, *, train: bool) -> Hidden:
        residual = self.feed_forward_residual
        return residual.after(x, self.feed_forward(residual.before(x), train=train), train=train)


class CausalLayer(EncoderLayer):
    """The layer of a decoder-only Transformer: causal self-attention with a KV cache."""

    def prefill(self, x: Hidden, mask: SentenceMask, cache: LayerCache) -> tuple[Hidden, LayerCache]:
        """Run ``__call__`` on a prompt [B, P, D] without dropout, and write it into ``cache``."""
        residual = self.self_attention_residual
        inputs = residual.before(x)
        cache = self.self_attention.prefill(inputs, mask, cache)
        x = residual.after(x, self.self_attention(inputs, inputs, mask, train=False), train=False)
        return self._feed_forward(x, train=False), cache

    def step(
        self, x: Float[Array, "B W D"], cache: LayerCache, mask: StepMask
    ) -> tuple[Float[Array, "B W D"], LayerCache]:
        residual = self.self_attention_residual
        y, cache = self.self_attention.step(residual.before(x), cache, mask)
        return self._feed_forward(residual.after(x, y, train=False), train=False), cache


class DecoderLayer(EncoderLayer):
    """Masked self-attention, attention to the source, then feed-forward."""

    def setup(self) -> None:
        super().setup()
        self.cross_attention = self.parts.cross_attention(self.site.of("cross"))
        self.cross_attention_residual = self.parts.residual(self.site.of("cross"))

    def __call__(  # type: ignore[override]  # another signature: it also reads the source
        self,
        x: Hidden,
        memory: Float[Array, "B S D"],
        self_mask: SentenceMask,
        cross_mask: SentenceMask,
        *,
        train: bool,
    ) -> Hidden:
        constrain, residual = self.parts.constrain, self.self_attention_residual
        inputs = residual.before(x)
        x = constrain(residual.after(x, self.self_attention(inputs, inputs, self_mask, train=train), train=train))
        residual = self.cross_attention_residual
        y = self.cross_attention(residual.before(x), memory, cross_mask, train=train)
        x = constrain(residual.after(x, y, train=train))
        return constrain(self._feed_forward(x, train=train))

    def step(
        self, x: Float[Array, "B W D"], cache: LayerCache, mask: StepMask, source: KVCache, source_mask: StepMask
    ) -> tuple[Float[Array, "B W D"], LayerCache]:
        """Add one more position to beams, written into the self-attention's ``cache``."""
        constrain, residual = self.parts.constrain, self.self_attention_residual
        y, cache = self.self_attention.step(residual.before(x), cache, mask)
        x = constrain(residual.after(x, y, train=False))
        residual = self.cross_attention_residual
        y = self.cross_attention.attend(residual.before(x), source, source_mask)
        x = constrain(residual.after(x, y, train=False))
        return constrain(self._feed_forward(x, train=False)), cache


def enter(layers: Sequence[EncoderLayer], hidden: Hidden, token_ids: TokenIds) -> PyTree:
    """Return the residual stream that the first layer reads: by default the hidden states."""
    return layers[0].self_attention_residual.enter(hidden, token_ids) if layers else hidden


def leave(layers: Sequence[EncoderLayer], stream: PyTree) -> Hidden:
    return layers[-1].feed_forward_residual.leave(stream) if layers else stream
