"""Multi-token prediction: further heads predict later tokens (Gloeckle et al. 2024)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Hidden, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.checks import setting
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.positions import score_mod_of
from transformer_jax.layers.site import Site
from transformer_jax.models.interface import shift_right
from transformer_jax.models.transformer_layers import CausalLayer, LayerParts, enter, leave
from transformer_jax.registry.plugins import register, registered
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.loss_terms import ForcedPass, LossTerm


@dataclass(frozen=True)
class MultiTokenSettings:
    tokens: int = setting(4, "Tokens predicted at a position, the next one included.", at_least=2)
    weight: float = setting(1.0, "Factor on the loss of later tokens.", at_least=0, program="traced")


class Head(nn.Module):
    """A causal layer and its final norm, on the hidden states of the model."""

    parts: LayerParts
    positions: nn.Module

    @classmethod
    def of(cls, model: Any) -> "Head":
        return cls(model.parts, model.target_positions if hasattr(model, "target_positions") else model.positions)

    def setup(self) -> None:
        site = Site("decoder", "self", 1, is_causal=True, index=0)
        self.layer, self.norm = CausalLayer(self.parts, site), self.parts.final_norm(site)

    def __call__(self, hidden: Hidden, target: Tokens, *, train: bool) -> Hidden:
        mask = SentenceMask.between(target, target, is_causal=True, score_mod=score_mod_of(self.positions))
        stream = enter([self.layer], hidden.astype(self.parts.residual_dtype), shift_right(target))
        return self.norm(leave([self.layer], self.layer(stream, mask, train=train)))


@register("loss_term", "multi_token", settings=MultiTokenSettings)
class MultiToken(LossTerm):
    """weight sum_i -log p_i(x_{t+i} | x_{<=t}), i = 2, ..., tokens: a layer for each i.

    Equation 2. The cross entropy has the label smoothing of the loss, unlike the paper's. The heads
    share the trunk and the unembedding. They read the hidden states of the whole model, which still
    predict the next token, so decoding equals the model without the term. The paper takes a layer
    from the trunk for a head, the first too. In an encoder-decoder the heads do not read the
    source again. A head has its own positions, such as a table of t5.
    """

    def init_params(self, config: ExperimentConfig, model: Any, key: Array) -> PyTree:
        if config.model.is_recurrent:
            raise ConfigError("training.loss_terms", "multi_token needs a Transformer")
        name, problem = config.model.projection, "changes the hidden states, which the heads of multi_token read"
        if not getattr(registered("projection")[name], "keeps_hidden", name == "linear"):
            raise ConfigError("model.projection", f"{name} {problem}", "use one with keeps_hidden, such as linear")
        hidden, target = jnp.zeros((1, 2, config.model.d_model)), Tokens.from_ids(jnp.ones((1, 2), jnp.int32))
        init, ahead = partial(Head.of(model).init, train=False), range(2, self.settings.tokens + 1)
        return {f"head_{i}": init(jax.random.fold_in(key, i), hidden, target)["params"] for i in ahead}

    def of_pass(self, forced: ForcedPass) -> Array:
        width, target, total = forced.config.model.d_model, forced.target, jnp.zeros(())
        # A bias of the logits is one more column, of ones.
        trunk, ones = forced.hidden[..., :width], forced.hidden[..., width:]
        for i in range(2, self.settings.tokens + 1):
            params, rngs = {"params": forced.params[f"head_{i}"]}, {"dropout": jax.random.fold_in(forced.key, i)}
            hidden: Any = Head.of(forced.model).apply(params, trunk, target, train=True, rngs=rngs)
            later = [jnp.pad(jnp.asarray(array), ((0, 0), (0, i - 1)))[:, i - 1 :] for array in target[:2]]
            weights = forced.weights * (later[1] == target.segments)
            total += forced.cross_entropy(jnp.concatenate([hidden, ones], -1), later[0], weights).loss
        return self.settings.weight * total
