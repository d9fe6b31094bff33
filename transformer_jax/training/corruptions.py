"""Corruptions of the tokens that a model reads in training; the labels stay."""

from typing import Any

import jax

from transformer_jax.array_types import Array
from transformer_jax.config import ExperimentConfig, Hyperparameters, parts_with
from transformer_jax.registry.plugins import registered


def corrupted(config: ExperimentConfig, hyperparameters: Hyperparameters, batch: Any, key: Array) -> Any:
    """``batch`` after the parts of ``training.corruptions``, in their order; a decoder reads its targets shifted right."""
    parts = parts_with(config, hyperparameters)
    for number, name in enumerate(config.training.corruption_names):
        batch = registered("corruption")[name](parts.get(name), batch, jax.random.fold_in(key, 0xC0 + number))
    return batch
