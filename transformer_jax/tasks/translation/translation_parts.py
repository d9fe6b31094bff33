"""Registers the task ``translation`` without JAX, which settings do not need."""

from transformer_jax.config.data import BatchingConfig, DataConfig
from transformer_jax.config.model import RnnConfig, TransformerConfig
from transformer_jax.config.tasks import LOSSES, Metric, TaskSettings
from transformer_jax.config.translation import DecodingConfig, check_translation
from transformer_jax.registry.plugins import register

register("task", "translation")(
    TaskSettings(
        DataConfig,
        BatchingConfig,
        {"transformer": TransformerConfig, "rnn": RnnConfig},
        DecodingConfig,
        Metric("bleu", "maximize", "BLEU", digits=2),
        (
            Metric("chrf", "maximize", "chrF", digits=2),
            Metric("bleu_lowercase", "maximize", "BLEU lower-case", digits=2),
            Metric("bleu_compounds", "maximize", "BLEU compounds", digits=2),
            Metric("bleu_moses", "maximize", "BLEU Moses", digits=2),
            Metric("ter", "minimize", "TER", digits=2),
            Metric("spbleu", "maximize", "spBLEU", digits=2),
            *LOSSES,
        ),
        check_translation,
        "transformer_jax.tasks.translation.translation_task:TranslationTask",
        "transformer_jax.tasks.translation.translating:Translating",
        uses=("translate",),
    )
)
