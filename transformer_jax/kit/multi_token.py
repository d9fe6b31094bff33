"""Multi-token prediction: further heads predict the tokens after the next one, in training only (Gloeckle et al. 2024)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, Hidden, PyTree
from transformer_jax.config import ExperimentConfig
from transformer_jax.config.checks import require, setting
from transformer_jax.config.plugins import register
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.site import Site
from transformer_jax.models.transformer_layers import CausalLayer, LayerParts
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.loss_terms import ForcedPass, LossTerm


@dataclass(frozen=True)
class MultiTokenSettings:
    """The number of tokens, and the weight of all but the next one."""

    tokens: int = setting(4, "Tokens predicted at each position, the next one included.", at_least=2)
    weight: float = setting(1.0, "Factor on the cross entropy of the tokens after the next one.", program="traced")


class Head(nn.Module):
    """A causal layer and its final norm, on the hidden states of the model."""

    parts: LayerParts

    def setup(self) -> None:
        site = Site("decoder", "self", 1, is_causal=True, index=0)
        self.layer = CausalLayer(self.parts, site)
        self.norm = self.parts.final_norm(site)

    def __call__(self, hidden: Hidden, target: Tokens, *, train: bool) -> Hidden:
        mask = SentenceMask.between(target, target, is_causal=True)
        return self.norm(self.layer(hidden.astype(self.parts.residual_dtype), mask, train=train))


@register("loss_term", "multi_token", settings=MultiTokenSettings)
class MultiToken(LossTerm):
    """weight sum_i -log p_i(x_{t+i} | x_{<=t}), i = 2, ..., tokens: a layer for each i (Gloeckle et al. 2024, equation 2).

    The heads share the trunk and the unembedding. They read the hidden states of the whole model, which predict the next token
    as ever, so decoding equals the model without the term; the paper takes a layer from the trunk for each head, the first
    too. In an encoder-decoder the heads do not read the source again.
    """

    @property
    def ahead(self) -> range:
        return range(2, self.settings.tokens + 1)

    def init_params(self, config: ExperimentConfig, model: Any, key: Array) -> PyTree:
        """See ``LossTerm``."""
        fits = not config.model.is_recurrent and config.model.projection in ("linear", "soft_capped")
        needed = "multi_token needs a Transformer, and model.projection=linear or soft_capped"
        require(fits, "training.loss_terms", needed)
        hidden, target = jnp.zeros((1, 2, config.model.d_model)), Tokens.from_ids(jnp.ones((1, 2), jnp.int32))
        init = partial(Head(model.parts).init, train=False)
        return {f"head_{i}": init(jax.random.fold_in(key, i), hidden, target)["params"] for i in self.ahead}

    def of_pass(self, forced: ForcedPass) -> Array:
        """See ``LossTerm``."""
        width, segments, total = forced.config.model.d_model, jnp.asarray(forced.target.segments), jnp.zeros(())
        # A bias of the logits is one more column, of ones.
        trunk, ones = forced.hidden[..., :width], forced.hidden[..., width:]
        for i in self.ahead:
            params, rngs = {"params": forced.params[f"head_{i}"]}, {"dropout": jax.random.fold_in(forced.key, i)}
            hidden: Any = Head(forced.model.parts).apply(params, trunk, forced.target, train=True, rngs=rngs)
            labels, later = (_moved(rows, i - 1) for rows in (forced.target.ids, segments))
            weights = forced.weights * (later == segments)
            total += forced.cross_entropy(jnp.concatenate([hidden, ones], -1), labels, weights).loss
        return self.settings.weight * total


def _moved(rows: AnyArray, distance: int) -> Array:
    """[B, T], each entry ``distance`` positions earlier, with zeros at the end."""
    return jnp.pad(jnp.asarray(rows), ((0, 0), (0, distance)))[:, distance:]
