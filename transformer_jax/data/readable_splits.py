"""Whether a split of the data of a run can be read, found out without JAX and TensorFlow."""

from itertools import islice

from transformer_jax.config import ExperimentConfig
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents
from transformer_jax.data.text_check import require_sound
from transformer_jax.data.text_files import TextCorpus

CHECKED_DOCUMENTS = 200_000


def require_readable(config: ExperimentConfig, split: str, *, is_whole: bool = False) -> None:
    """Raises DataError when there is no such split, or its first example cannot be read; where ``is_whole`` every line of
    parallel text, or many documents.
    """
    name = config.data.split_name(split)
    if not config.data.has_pairs:
        found = open_documents(config.data, config.data_seed).documents(name)
        next(islice(found, CHECKED_DOCUMENTS if is_whole else 1, None), None)
        return
    corpus = open_corpus(config.data, config.data_seed)
    if is_whole and isinstance(corpus, TextCorpus):
        require_sound(corpus, name)
    else:
        next(corpus.pairs(name), None)
