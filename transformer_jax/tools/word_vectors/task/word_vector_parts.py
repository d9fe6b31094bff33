"""Registers the task ``word_vectors`` and the reader of ``init.embeddings`` without JAX."""

from typing import Any

from transformer_jax.config.tasks import LOSSES, Metric, TaskSettings
from transformer_jax.registry.plugins import register
from transformer_jax.tools.word_vectors.task.word_vector_settings import (
    BlockConfig,
    GloveConfig,
    NoDecodingConfig,
    Word2vecConfig,
    WordTextConfig,
    check_word_vectors,
)

# Settings of the model that choose the pairs, and the terms of their loss.
TERMS = "kind", "output", "negatives", "window", "x_max", "alpha"

register("task", "word_vectors")(
    TaskSettings(
        WordTextConfig,
        BlockConfig,
        {"skip_gram": Word2vecConfig, "cbow": Word2vecConfig, "glove": GloveConfig},
        NoDecodingConfig,
        LOSSES[0]._replace(defined_by=("tokenizer", "data.subsample", *(f"model.{name}" for name in TERMS))),
        (
            Metric("analogies", "maximize", needs="data.test_sets"),
            Metric("similarity", "maximize", needs="data.test_sets"),
        ),
        check_word_vectors,
        "transformer_jax.tools.word_vectors.task.word_vector_task:WordVectorTask",
        uses=("vectors",),
    )
)


@register("word_table", "word_vectors")
def read_word_table(file: str) -> tuple[list[str], Any]:
    """Return the words of a file of vectors, and their vectors [V, D]."""
    from transformer_jax.tools.word_vectors.keyed_vectors import read_vectors

    vectors = read_vectors(file)
    return vectors.index_to_key, vectors.vectors
