"""The settings that the JavaScript of the live page implements, without JAX."""

import re
from typing import Any

from transformer_jax.config import ConfigError, ExperimentConfig

Choices = dict[str, tuple[Any, ...]]
TRANSFORMER: Choices = {
    "model.normalization": ("post", "pre"),
    "model.norm": ("layer_norm", "rmsnorm"),
    "model.positions": ("sinusoidal", "fairseq", "learned", "none", "rope"),
    "model.feed_forward": (*("relu", "gelu", "exact_gelu", "silu", "swiglu", "geglu", "reglu", "relu_squared"),),
    "model.attention": ("multi_head", "biased", "unscaled", "grouped_query", "multi_query", "qk_norm"),
    "model.mixers": ("", "attention"),
    "model.projection": ("linear",),
}
RECURRENT: Choices = {
    "model.attention": (
        *("dot", "scaled_dot", "general", "additive", "normalized_additive", "concat", "location"),
        *("local_m", "local_p", "location_sensitive", "cumulative_location_sensitive"),
    )
}
TRANSLATION: Choices = {
    "tokenizer.kind": ("bpe", "unigram", "word", "character", "byte"),
    "decoding.search": ("beam",),
    "decoding.stop": ("exact",),
}
IMPLEMENTED: dict[str, Choices] = {
    "translation": {"model.kind": ("transformer", "rnn"), **TRANSLATION},
    "language_model": {"model.kind": ("decoder_only",), "tokenizer.kind": ("bpe", "unigram", "byte")},
}


def require_live(config: ExperimentConfig) -> None:
    """Raise ConfigError unless the JavaScript implements model, tokenizer and search."""
    if config.task not in IMPLEMENTED:
        raise ConfigError("--live", f"a run of task={config.task}", f"the live page takes {' and '.join(IMPLEMENTED)}")
    parts = RECURRENT if config.model.is_recurrent else TRANSFORMER
    for name, choices in (IMPLEMENTED[config.task] | parts).items():
        block, _, setting = name.partition(".")
        value = getattr(getattr(config, block), setting)
        for part in re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else (value,):
            if part not in choices:
                implemented = ", ".join(str(choice) or "''" for choice in choices)
                problem = f"{name}={value} is not implemented in the page"
                raise ConfigError("--live", problem, f"it implements {implemented}")


def live_page_to_try(config: ExperimentConfig) -> list[str]:
    """Return the command for a live page of a run if the page implements its model."""
    try:
        require_live(config)
    except ConfigError:
        return []
    return ["explore {run} --live"]
