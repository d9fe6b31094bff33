r"""Word vectors: skip-gram and CBOW (word2vec), and GloVe, learned from plain text.

    transformer-jax train --config=word_vectors --config.data.train=book.txt --budget=5m \
        --workdir=runs/mine
    transformer-jax train --config=configs/word_vectors.py:quick --workdir=runs/vectors_quick
    transformer-jax train --config=configs/word_vectors.py:skip_gram \
        --config.data.train=enwiki.txt.xz --workdir=runs/skip_gram

``quick``: generated English, in which words of one class become neighbors, in seconds on two CPU
cores. The others are for a text of 16 million words, 100 dimensions, words of at least 5
occurrences, 5 epochs (1,980 updates). ``skip_gram`` and ``cbow`` take a minute of two CPU cores:
29.4 % and 24.5 % of word2vec's analogies. ``glove``: 9 CPU minutes, 26.2 %. See
experiments/word_vectors.
"""

from ml_collections import ConfigDict

VARIANTS = ("text", "skip_gram", "cbow", "glove", "quick")
OWN_TEXT = "text"
BUDGET = {"text": "10m"}
MEASURED = {
    "skip_gram": ("2 shared CPU cores", "1 min", "analogies 29.4 %"),
    "cbow": ("2 shared CPU cores", "1 min", "analogies 24.5 %"),
    "glove": ("2 shared CPU cores", "9 CPU min", "analogies 26.2 %"),
}


def get_config(variant: str = "quick") -> ConfigDict:
    """Return the settings of a variant."""
    config = ConfigDict({"task": "word_vectors"})
    if variant == "text":
        text(config)
        return config
    config.data = {"source": "text", "train": "text.txt.xz", "documents": "lines", "held_out": 0.005, "subsample": 1e-3}
    config.tokenizer = {"kind": "lower_word", "vocabulary_size": 1_000_000, "min_count": 5}
    config.batching = {"rows": 64, "row_length": 32, "blocks_per_update": 16}
    config.optimizer = {"name": "sgd", "schedule": "linear", "learning_rate": 0.025, "warmup_updates": 1}
    config.training = {"num_updates": 1980, "label_smoothing": 0.0, "evaluate_every": 396, "checkpoint_every": 396}
    config.training.update(keep_last=1, log_every=10)
    VECTORS[variant](config)
    return config


def text(config: ConfigDict) -> None:
    """Train skip-gram on your own text, sized for the text and --budget."""
    config.data = {"source": "text", "subsample": 1e-3}
    config.optimizer = {"name": "sgd", "schedule": "linear", "learning_rate": 0.025, "warmup_updates": 1}
    config.training = {"label_smoothing": 0.0, "keep_last": 1}
    config.model = {"kind": "skip_gram", "window": 5, "negatives": 5}


def skip_gram(config: ConfigDict) -> None:
    """Use skip-gram with negative sampling (Mikolov et al. 2013b)."""
    config.model = {"kind": "skip_gram", "d_model": 100, "window": 5, "negatives": 5}
    # Gradients of a word add up over a block: blocks of 2,048 words diverge on a text of 200,000.
    config.batching.update(rows=32, blocks_per_update=32)


def cbow(config: ConfigDict) -> None:
    """Use CBOW (Mikolov et al. 2013a) with negative sampling."""
    config.model = {"kind": "cbow", "d_model": 100, "window": 5, "negatives": 5}


def glove(config: ConfigDict) -> None:
    """Use GloVe (Pennington et al. 2014): 15 epochs of the 48 million pairs of the text."""
    # Few pairs in a text of this size reach the paper's x_max of 100, for billions of words.
    config.data.subsample = 0.0
    config.model = {"kind": "glove", "d_model": 100, "window": 10, "x_max": 10}
    config.training.update(num_updates=22_000, evaluate_every=4400, checkpoint_every=4400)
    config.optimizer = {"name": "adagrad", "schedule": "constant", "learning_rate": 0.05, "warmup_updates": 1}


def quick(config: ConfigDict) -> None:
    """Train on 20,000 sentences of the embedded grammar."""
    skip_gram(config)
    config.data = {"source": "grammar", "generated_sentences": 20_000, "subsample": 1e-3}
    config.model.update(d_model=32, window=3, shared_negatives=16)
    config.batching = {"rows": 16, "row_length": 16, "blocks_per_update": 16}
    config.training.update(num_updates=200, evaluate_every=100, checkpoint_every=100)


VECTORS = {"skip_gram": skip_gram, "cbow": cbow, "glove": glove, "quick": quick}
