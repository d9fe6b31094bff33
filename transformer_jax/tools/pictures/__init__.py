"""Pictures of models and runs. The only door to matplotlib."""

from transformer_jax.tools.pictures.attention_maps import draw_attention
from transformer_jax.tools.pictures.curves import draw_curves

__all__ = ["draw_attention", "draw_curves"]
