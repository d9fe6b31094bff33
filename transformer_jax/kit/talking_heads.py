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
        self.mix_scores = self.param("mix_scores", identity, self.num_heads)
        self.mix_weights = self.param("mix_weights", identity, self.num_heads)

    def score_mod(self) -> Partial:
        return Partial(mixed_scores, self.mix_scores)

    def weights_mod(self) -> Partial:
        return Partial(mixed_weights, self.mix_weights)


def identity(key: Array, size: int) -> Float[Array, "H H"]:
    del key
    return jnp.eye(size)


def mixed(mix_HJ: Float[Array, "H J"], heads: Float[Array, "B H Q M"]) -> Float[Array, "B J Q M"]:
    return jnp.einsum("BHQM,HJ->BJQM", heads, mix_HJ.astype(heads.dtype), precision="highest")


def mixed_weights(
    mix_HJ: Float[Array, "H J"], weights: Float[Array, "B H Q M"], scores: Float[Array, "B H Q M"]
) -> Float[Array, "B J Q M"]:
    return mixed(mix_HJ, weights)


def mixed_scores(mix_HJ: Float[Array, "H J"], scores: Float[Array, "B H Q M"], at: At) -> Float[Array, "B J Q M"]:
    return mixed(mix_HJ, scores)
