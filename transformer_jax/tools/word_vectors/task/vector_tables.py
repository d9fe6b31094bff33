"""From trained parameters to a table of word vectors."""

from collections.abc import Collection

import jax
import numpy as np

from transformer_jax.array_types import NUM_SPECIAL_IDS, PyTree
from transformer_jax.config import ExperimentConfig
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.tools.word_vectors.vectors import WordVectors

TABLES = {"skip_gram": ("embedding",), "cbow": ("embedding",), "glove": ("embedding", "projection")}
"""By ``model.kind``: the tables whose sum are the vectors (of GloVe both, section 4.2 of Pennington et al. 2014)."""


def vectors_of(
    params: PyTree, config: ExperimentConfig, tokenizer: Tokenizer, without: Collection[int] = ()
) -> WordVectors:
    """The vectors of the words of a tokenizer, in its order; special ids, and those of ``without``, have none."""
    left_out = frozenset(without)
    ids = [number for number in range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size) if number not in left_out]
    tables = [np.asarray(jax.device_get(params[name]["table"]), np.float32) for name in TABLES[config.model.kind]]
    return WordVectors(tokenizer.pieces(ids), np.sum(tables, axis=0)[ids])
