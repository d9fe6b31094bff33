"""Whether a split of the data of a run can be read, found out without JAX and TensorFlow."""

from collections.abc import Iterator
from itertools import islice

from transformer_jax.config import ExperimentConfig
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents


def require_readable(config: ExperimentConfig, split: str, examples: int = 1) -> None:
    """Raises DataError when there is no such split, or its first ``examples`` cannot be read."""
    name = config.data.split_name(split)
    found: Iterator[object]
    if config.task == "translation":
        found = open_corpus(config.data, config.data_seed).pairs(name)
    else:
        found = open_documents(config.data, config.data_seed).documents(name)
    next(islice(found, examples, None), None)
