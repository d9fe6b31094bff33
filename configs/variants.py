"""Two early public re-implementations of the Transformer, for readers of the tutorials that were written around them.

    transformer-jax train --config=configs/variants.py:keras_en2de --config.data.directory=multi30k --workdir=runs/keras
    transformer-jax train --config=configs/variants.py:tf_demo --config.data.directory=multi30k --workdir=runs/tf_demo

Both on Multi30k, which the first was written for (see multi30k.py). Neither was run at its own size. The cost of their choices
was measured at a common size and rate, with five minutes of training each (experiments/attention_ancestors): BLEU on
test_2016 is 31.77 for the paper's model, 31.11 for keras_en2de, 28.56 for tf_demo.
"""

import multi30k
from ml_collections import ConfigDict

VARIANTS = ("keras_en2de", "tf_demo")


def get_config(variant: str = "keras_en2de") -> ConfigDict:
    """The settings of a variant."""
    return {"keras_en2de": keras_en2de, "tf_demo": tf_demo}[variant](multi30k.get_config())


def keras_en2de(config: ConfigDict) -> ConfigDict:
    """The English-German example of Lsdefine/attention-is-all-you-need-keras (2017).

    Its departures from the paper: 2 layers, width 256, feed-forward 512, 4 heads; dropout on the attention weights too; two
    vocabularies of words, nothing shared between the embeddings or with the output matrix; no label smoothing. Ours from it:
    its output projection of the heads has a bias, its embeddings are not multiplied by sqrt(d_model), its loss is averaged over
    sentences before batches, and its batches are 64 sentences.

    Against the paper's model, cut to one size and five minutes on two cores: 0.7 BLEU less, and 10.3 M parameters for 4.2 M.
    """
    config.tokenizer = {"kind": "word", "vocabulary_size": 10_000, "joint": False}
    config.model = {
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 256,
        "d_ff": 512,
        "num_heads": 4,
        "tying": "none",
        "dropout": 0.1,
        "embedding_dropout": 0.1,
        "attention_dropout": 0.1,
    }
    config.optimizer = {"name": "adam", "schedule": "noam", "learning_rate": 1.0, "warmup_updates": 4000, "b2": 0.98}
    config.training.label_smoothing = 0.0
    return config


def tf_demo(config: ConfigDict) -> ConfigDict:
    """The demonstration of Kyubyong/transformer (2017), sizes of the paper's base model: width 512, 8 heads, 6 layers.

    Its departures from the paper: a ReLU after the projections of queries, keys and values; no projection of the heads' output;
    learned positions; the embedding of padding is zero for ever; what a padding query attends to is zero; two vocabularies of
    words, nothing shared; a constant rate of 1e-4; dropout on embeddings and attention weights and not on the sublayers. Ours
    from it: its projections have biases, and it reads at most 10 words, where this reads all of them.

    Against the paper's model, cut to one size and rate, five minutes on two cores: 3.2 BLEU less, and 10.4 M parameters for
    4.2 M.
    """
    config.tokenizer = {"kind": "word", "vocabulary_size": 10_000, "joint": False}
    config.model = {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "attention": "rectified",
        "embedding": "zero_padding",
        "positions": "learned",
        "tying": "none",
        "dropout": 0.0,
        "embedding_dropout": 0.1,
        "attention_dropout": 0.1,
        "compute_dtype": "bfloat16",
    }
    config.optimizer = {"name": "adam", "schedule": "constant", "learning_rate": 1e-4, "warmup_updates": 1, "b2": 0.98}
    return config
