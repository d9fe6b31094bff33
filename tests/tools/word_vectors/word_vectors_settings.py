"""Settings of word vectors that are learned in seconds, a table of five words, and losses as
functions of whole tables."""

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.config import from_dict
from transformer_jax.tools.word_vectors.keyed_vectors import keyed_vectors

WORDS = {"man": [1, 0, 0], "woman": [1, 1, 0], "king": [1, 0, 1], "queen": [1, 1, 1], "apple": [-1, 0, 0.1]}


def royal():
    return keyed_vectors(list(WORDS), np.array(list(WORDS.values()), np.float32))


def word_vectors_config(cache, **blocks):
    """Generated English, vectors of 8 numbers."""
    settings = {
        "task": "word_vectors",
        "data": {"generated_sentences": 600, "cache_directory": str(cache)},
        "tokenizer": {"kind": "lower_word", "vocabulary_size": 10_000, "min_count": 2},
        "batching": {"rows": 8, "row_length": 8, "blocks_per_update": 4},
        "model": {"kind": "skip_gram", "d_model": 8, "window": 2, "negatives": 3, "shared_negatives": 4},
        "optimizer": {"name": "sgd", "schedule": "linear", "learning_rate": 0.05, "warmup_updates": 1},
        "training": {
            "num_updates": 12,
            "evaluate_every": 6,
            "checkpoint_every": 3,
            "log_every": 1,
            "label_smoothing": 0.0,
        },
        "mesh": {"data": 1},
    }
    for name, block in blocks.items():
        # A model of another kind has other settings.
        settings[name] = block if "kind" in block and name == "model" else settings[name] | block
    return from_dict(settings)


def loss_of_tables(objective, block, params):
    """The loss of a block from whole tables, which are looked up as an update does."""
    block = jax.tree.map(jnp.asarray, block)
    lookups = objective.lookups(block).items()
    rows = {name: params[lookup.table[0]][lookup.table[1]][lookup.ids] for name, lookup in lookups}
    return objective.loss(rows, block).loss
