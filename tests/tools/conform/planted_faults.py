"""Parts with one fault each, which ``conform`` must find."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax import register
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.tools.conform.equations import multi_head


def sharpened(params, inputs, mask):
    """Scores times a factor of each head."""
    factor = params["changes_other_equation"]["factor"]
    return multi_head(params, inputs, mask, scores=lambda scores: scores * factor[:, None, None])


class Sharpened(AttentionChange):
    def setup(self):
        self.factor = self.param("factor", nn.initializers.ones, (self.num_heads,))

    def score_mod(self):
        return Partial(times, self.factor)


def times(factor, scores, at):
    return scores * factor[None, :, None, None]


@register("attention", "other_equation", reference=sharpened)
class OtherEquation(Sharpened):
    def score_mod(self):
        return Partial(times, self.factor**2)


@register("attention", "not_trained")
class NotTrained(AttentionChange):
    def setup(self):
        self.temperature = self.param("temperature", nn.initializers.ones, (self.num_heads,))

    def score_mod(self):
        return Partial(times, jax.lax.stop_gradient(self.temperature))


@register("attention", "changes_nothing")
class ChangesNothing(AttentionChange):
    def score_mod(self):
        return Partial(same)


def same(scores, at):
    return scores + 0.0 * jnp.abs(at.distance)[:, None]


@register("attention", "rounds_scores")
class RoundsScores(AttentionChange):
    def score_mod(self):
        return Partial(rounded)


def rounded(scores, at):
    return 2.0 * scores.astype(jnp.bfloat16).astype(jnp.float32)


@register("attention", "acausal_second_layer")
class AcausalSecondLayer(AttentionChange):
    def keys(self, key_BGMK, positions):
        return key_BGMK + (self.site.layer == 1) * jnp.roll(key_BGMK, -1, axis=2)
