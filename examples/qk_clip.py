"""QK-clip: a head with scores above a threshold gets smaller queries and keys (Kimi K2, 2025).

transformer-jax train --plugin=examples/qk_clip.py --config=quickstart \
    --config.optimizer.name=muon --config.optimizer.after_update=qk_clip \
    --config.parts.qk_clip.threshold=30 --workdir=runs/qk_clip
"""

from dataclasses import dataclass

import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

import transformer_jax
from transformer_jax.config import ConfigError, setting
from transformer_jax.training.statistics import AfterUpdate, ratio


@dataclass(frozen=True)
class QkClipSettings:
    threshold: float = setting(100.0, "Largest score that a head may have (tau).", program="traced")

    def check_new_run(self, config):
        for key, _, name in config.selections:
            if name in ("qk_norm", "ngpt"):
                raise ConfigError(key, f"{name} undoes a change of the lengths of queries", "leave out qk_clip")


@transformer_jax.register("after_update", "qk_clip", settings=QkClipSettings)
class QkClip(AfterUpdate):
    """Kernels of queries and keys times sqrt(tau / largest score), head by head (algorithm 1)."""

    is_maximum = True
    reads_activations = True

    def of_pass(self, activations):
        return {
            path: ratio(jnp.max(jnp.where(visible[:, None], scores, 0.0), axis=(0, 2, 3)), jnp.ones(scores.shape[1]))
            for path, (scores, _, visible) in activations.attention.items()
        }

    def after_update(self, params, statistics):
        leaves = flatten_dict(params, sep="/")
        for path, (largest, _) in statistics.items():
            factors = jnp.minimum(1.0, self.settings.threshold / jnp.maximum(largest, 1e-6))
            # Heads that share keys (grouped_query) shrink them once, by their smallest factor.
            key = leaves[f"{path}/key"]
            shared = jnp.sqrt(factors.reshape(key.shape[1], -1).min(axis=1))
            leaves[f"{path}/key"] = key * shared[None, :, None]
            leaves[f"{path}/query"] *= (factors / jnp.repeat(shared, len(factors) // len(shared)))[None, :, None]
        return unflatten_dict(leaves, sep="/")
