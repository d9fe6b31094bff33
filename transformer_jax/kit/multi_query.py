"""Multi-query attention (Shazeer 2019, section 3)."""

from transformer_jax.config.plugins import register
from transformer_jax.layers.modified_attention import AttentionChange


@register("attention", "multi_query")
class MultiQuery(AttentionChange):
    """All query heads share one head of keys and values."""

    @property
    def key_value_heads(self) -> int:
        return 1
