"""Grouped-query attention, and multi-query attention with one group (Ainslie et al. 2023)."""

from dataclasses import dataclass

from transformer_jax.config.checks import setting
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.registry.plugins import register


@dataclass(frozen=True)
class GroupedQuerySettings:
    key_value_heads: int = setting(2, "G, heads of keys and values; divides model.num_heads.")


@register("attention", "grouped_query", settings=GroupedQuerySettings)
class GroupedQuery(AttentionChange):
    """H / G query heads share a head of keys and values: an H / G times smaller cache."""

    @property
    def key_value_heads(self) -> int:
        return self.settings.key_value_heads


@register("attention", "multi_query")
class MultiQuery(AttentionChange):
    """All query heads share one head of keys and values (Shazeer 2019, section 3)."""

    @property
    def key_value_heads(self) -> int:
        return 1
