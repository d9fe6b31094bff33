"""The task ``parsing``, its data sources and tokenizers, registered as a plugin does; imports no JAX."""

from typing import Any

from transformer_jax.config.data import BatchingConfig
from transformer_jax.config.evaluation import Metric
from transformer_jax.config.model import RnnConfig, TransformerConfig
from transformer_jax.config.plugins import register
from transformer_jax.config.tasks import LOSSES, TaskSettings
from transformer_jax.tools.parsing.settings import ParserConfig, TreebankConfig, check_parsing

register("task", "parsing")(
    TaskSettings(
        TreebankConfig,
        BatchingConfig,
        {"transformer": TransformerConfig, "rnn": RnnConfig},
        ParserConfig,
        Metric("f1", "maximize", "F1", digits=2),
        (Metric("exact_match", "maximize", "exact match", digits=2), *LOSSES),
        check_parsing,
        "transformer_jax.tools.parsing.task:ParsingTask",
    )
)
register("tokenizer", "symbol")("transformer_jax.tools.parsing.tokenizers:SymbolTokenizer")
register("tokenizer", "word_class")("transformer_jax.tools.parsing.tokenizers:WordClassTokenizer")


@register("data_source", "treebank")
def treebank(data: TreebankConfig, seed: int) -> Any:
    """Trees of files, of task=parsing."""
    from transformer_jax.tools.parsing.corpus import Treebank

    del seed
    return Treebank(data)


@register("data_source", "generated_treebank")
def generated_treebank(data: TreebankConfig, seed: int) -> Any:
    """Trees of a small grammar, of task=parsing."""
    from transformer_jax.tools.parsing.corpus import GeneratedTreebank

    return GeneratedTreebank(data, seed)
