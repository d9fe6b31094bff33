"""Word dropout: tokens that the model reads become UNK (Gal and Ghahramani 2016)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.array_types import UNK_ID, Array
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.checks import setting
from transformer_jax.layers.dropout import dropout_mask
from transformer_jax.registry.plugins import register
from transformer_jax.sequence_types import Tokens


@dataclass(frozen=True)
class WordDropoutSettings:
    rate: float = setting(0.1, "Probability of a token to be replaced.", at_least=0, below=1, program="traced")

    def check_new_run(self, config: ExperimentConfig) -> None:
        if getattr(config.data, "tags", ""):
            problem = "word_dropout would replace the tags of data.tags; leave out one of the two"
            raise ConfigError("training.corruptions", problem)


@register("corruption", "word_dropout", settings=WordDropoutSettings)
def word_dropout(settings: WordDropoutSettings, batch: Any, key: Array) -> Any:
    """Replace tokens of source and decoder input by UNK, not EOS (Bowman et al. 2016)."""
    keys = iter(jax.random.split(key))

    def dropped(tokens: Tokens) -> Tokens:
        ids = jnp.asarray(tokens.ids)
        is_dropped = dropout_mask(jnp.float32(settings.rate), next(keys))(jnp.ones(ids.shape)) == 0
        return tokens._replace(ids=jnp.where(is_dropped & (ids > UNK_ID), UNK_ID, ids))

    return jax.tree.map(dropped, batch, is_leaf=lambda node: isinstance(node, Tokens))
