"""Registers the task ``language_model`` without JAX, which settings do not need."""

from transformer_jax.config.language_model import (
    DecoderOnlyConfig,
    GenerationConfig,
    TextBatchingConfig,
    TextDataConfig,
    check_language_model,
)
from transformer_jax.config.tasks import LOSSES, Metric, TaskSettings
from transformer_jax.registry.plugins import register

register("task", "language_model")(
    TaskSettings(
        TextDataConfig,
        TextBatchingConfig,
        {"decoder_only": DecoderOnlyConfig},
        GenerationConfig,
        Metric("bits_per_byte", "minimize"),
        LOSSES,
        check_language_model,
        "transformer_jax.tasks.language_model.language_model_task:LanguageModelTask",
        uses=("generate",),
    )
)
