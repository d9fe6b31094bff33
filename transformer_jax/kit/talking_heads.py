"""Talking-heads attention (Shazeer et al. 2020, section 4)."""

import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import At
from transformer_jax.registry.plugins import register


@register("attention", "talking_heads")
class TalkingHeads(AttentionChange):
    """Scores of all heads are mixed before the softmax, and weights after it.

    ``mix_scores`` and ``mix_weights`` [H, H] start as the identity, so that the model starts as
    multi-head attention.
    """

    def setup(self) -> None:
        self.mix_scores = self.param("mix_scores", lambda _: jnp.eye(self.num_heads))
        self.mix_weights = self.param("mix_weights", lambda _: jnp.eye(self.num_heads))

    def score_mod(self) -> Partial:
        return Partial(mixed, self.mix_scores)

    def weights_mod(self) -> Partial:
        return Partial(mixed, self.mix_weights)


def mixed(mix_HJ: Float[Array, "H J"], heads: Float[Array, "B H Q M"], unread: At | Array) -> Float[Array, "B J Q M"]:
    """Mix the scores, or the weights, of all heads."""
    return jnp.einsum("BHQM,HJ->BJQM", heads, mix_HJ.astype(heads.dtype), precision="highest")
