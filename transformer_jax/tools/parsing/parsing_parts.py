"""Registers the task ``parsing``, its data sources and tokenizers without JAX."""

from transformer_jax.config.data import BatchingConfig
from transformer_jax.config.model import RnnConfig, TransformerConfig
from transformer_jax.config.tasks import LOSSES, Metric, TaskSettings, imported
from transformer_jax.registry.plugins import register
from transformer_jax.tools.parsing.parsing_settings import FORM, ParserConfig, TreebankConfig, check_parsing

SYMBOLS = "tokenizer", *(f"data.{name}" for name in FORM)

register("task", "parsing")(
    TaskSettings(
        TreebankConfig,
        BatchingConfig,
        {"transformer": TransformerConfig, "rnn": RnnConfig},
        ParserConfig,
        Metric("f1", "maximize", "F1", digits=2),
        (
            Metric("exact_match", "maximize", "exact match", digits=2),
            *(loss._replace(defined_by=SYMBOLS) for loss in LOSSES),
        ),
        check_parsing,
        "transformer_jax.tools.parsing.parsing_task:ParsingTask",
        uses=("translate", "parse"),
    )
)
register("tokenizer", "symbol")("transformer_jax.tools.parsing.tokenizers:SymbolTokenizer")
register("tokenizer", "word_class")("transformer_jax.tools.parsing.tokenizers:WordClassTokenizer")
CORPUS = "transformer_jax.tools.parsing.corpus"
register("data_source", "treebank")(lambda data, seed: imported(f"{CORPUS}:Treebank")(data))
register("data_source", "generated_treebank")(lambda data, seed: imported(f"{CORPUS}:GeneratedTreebank")(data, seed))
