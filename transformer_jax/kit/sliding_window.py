"""Sliding-window attention (Beltagy et al. 2020, section 3.1)."""

from dataclasses import dataclass

from transformer_jax.config.checks import setting
from transformer_jax.layers.masks import Window
from transformer_jax.layers.modified_attention import SelfAttentionChange
from transformer_jax.registry.plugins import register


@dataclass(frozen=True)
class SlidingWindowSettings:
    size: int = setting(128, "Keys that a query sees; in an encoder half of them on either side, beside its own.")


@register("attention", "sliding_window", settings=SlidingWindowSettings)
class SlidingWindow(SelfAttentionChange):
    """Self-attention in a window of positions, which the KV cache of a decoder keeps."""

    def mask_mod(self) -> Window:
        size = self.settings.size
        return Window(size - 1, 0) if self.site.is_causal else Window(size // 2, size // 2)
