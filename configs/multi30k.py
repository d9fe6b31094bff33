r"""Multi30k, English to German: 29,000 image captions of about twelve words (Elliott et al. 2016).

    transformer-jax train --config=configs/multi30k.py:tiny_hour \
        --config.data.directory=multi30k --workdir=runs/m30k
    transformer-jax evaluate --workdir=runs/m30k --split=test

The folder holds train, val and test_2016 as .en and .de files, plain or gzipped, from
https://github.com/multi30k/dataset (data/task1/raw). A validation decodes 200 of the 1,014
validation sentences (``best``: 384) greedily, in a second of two cores. Compilation takes half a
minute once, and is cached. To decode all of them with beam search:
--config.training.validation_sentences=0 --config.training.validation_beam_width=0.

``keras_en2de`` and ``tf_demo`` are two early public re-implementations of the Transformer that many
tutorials describe. Neither was run at its size. At a common size and learning rate, with five
minutes of training each (experiments/attention_ancestors), BLEU on test_2016 is 31.77 for the model
of the paper, 31.11 for keras_en2de, 28.56 for tf_demo.
"""

from ml_collections import ConfigDict

VARIANTS = ("best", "tiny", "tiny_hour", "tiny_minutes", "keras_en2de", "tf_demo")
MEASURED = {
    "best": ("1 shared CPU core", "53 CPU min after 70 for teachers and translations", "test BLEU 41.53 (three seeds)"),
    "tiny": ("2 shared CPU cores", "79 min", "test BLEU 39.8"),
    "tiny_hour": ("2 shared CPU cores", "50 min", "test BLEU 37.0"),
    "tiny_minutes": ("1 shared CPU core", "6 min", "validation BLEU 8.5"),
}


def get_config(variant: str = "tiny_hour") -> ConfigDict:
    """Return the settings of a variant."""
    config = ConfigDict()
    config.data = {
        "source": "text",
        "directory": "multi30k",
        "train_split": "train",
        "validation_split": "val",
        "test_split": "test_2016",
        "max_source_tokens": 99,
        "max_target_tokens": 99,
    }
    config.model = {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "d_model": 128,
        "d_ff": 256,
        "num_heads": 4,
        "compute_dtype": "auto",
    }
    config.decoding = {"beam_width": 5, "length_penalty": 0.6}
    sizes = {"best": best, "tiny": tiny, "tiny_hour": tiny_hour, "tiny_minutes": tiny_minutes}
    config = sizes.get(variant, tiny_hour)(config)
    config.training.update(validation_sentences=384 if variant == "best" else 200, validation_beam_width=1)
    reimplementations = {"keras_en2de": keras_en2de, "tf_demo": tf_demo}
    return reimplementations[variant](config) if variant in reimplementations else config


def best(config: ConfigDict) -> ConfigDict:
    r"""Distill two teachers: train on captions and their translations by an ensemble.

    Sequence-level distillation: Kim and Rush 2016, section 3.2.

        transformer-jax train --config=text --config.data.train=multi30k/train.{en,de} \
            --config.data.validation=multi30k/val.{en,de} --budget=30m \
            --budget_policy=stretch --config.seed=1 --workdir=runs/a
        transformer-jax train --config=text --config.data.train=multi30k/train.{en,de} \
            --config.data.validation=multi30k/val.{en,de} --budget=30m \
            --budget_policy=stretch --config.seed=1 --config.model.dropout=0.2 \
            --workdir=runs/b
        transformer-jax translate runs/b --ensemble=runs/a --checkpoint=last \
            --config.decoding.beam_width=4 --config.decoding.length_penalty=1.0 \
            --source=multi30k/train.en --output=translated.de
        cat multi30k/train.en multi30k/train.en > both.en
        cat multi30k/train.de translated.de > both.de
        transformer-jax train --config=multi30k:best --config.data.train=both.{en,de} \
            --config.data.directory=multi30k --config.seed=1 --workdir=runs/best
        transformer-jax evaluate runs/best --checkpoint=last --split=test

    Batches, learning rate and length are from ``--config=text --budget=50m``. Three seeds at commit
    059af795, each on one core of an AMD EPYC: test_2016 BLEU 41.53, lower-case 41.91, Moses
    lower-case 41.94 on average (Wu et al. 2021: 41.02). See experiments/multi30k.
    """
    config.data.train = "both.{en,de}"
    config.data.max_source_tokens = config.data.max_target_tokens = 191
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 6000, "joint": True, "character_coverage": 0.0}
    config.batching = {"kind": "packed", "tokens_per_update": 1536, "count": "tokens", "packed_length": 64}
    config.batching.width_multiple = 8
    config.model.update(normalization="pre", dropout=0.2, embedding_dropout=0.1)
    config.optimizer = {"schedule": "wsd", "learning_rate": 3.5e-3, "warmup_updates": 1429}
    config.training = {"num_updates": 14_291, "evaluate_every": 1787, "checkpoint_every": 285, "keep_last": 10}
    return config


def tiny(config: ConfigDict) -> ConfigDict:
    """Train Transformer-Tiny as published (Wu et al. 2021, section 4).

    On 29,000 sentences a base-size model overfits.

    It trains on about 64 million target positions. Run at commit e6787ef on two cores of an AMD
    EPYC (Zen 5), shared with other programs and killed eight times: 79 minutes. The average of the
    last 10 checkpoints has on test_2016 lower-case BLEU 40.30
    (nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.6.0; published: 41.02), BLEU 39.82, chrF
    64.41. See experiments/multi30k.
    """
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 10_000, "joint": True}
    config.batching = {"kind": "buckets", "tokens_per_update": 8192, "num_buckets": 4}
    config.model.dropout = config.model.embedding_dropout = 0.3
    config.optimizer = {"schedule": "inverse_square_root", "learning_rate": 5e-3, "warmup_updates": 2000}
    config.training = {"num_updates": 8000, "evaluate_every": 500, "checkpoint_every": 250, "keep_last": 10}
    return config


def tiny_hour(config: ConfigDict) -> ConfigDict:
    """Train the same model for an hour of two CPU cores.

    It trains on a fifth of the tokens, in smaller batches with less dropout.

    Run at commit 3722d9c on two cores of an AMD EPYC (Zen 4), shared with other programs: 49.6
    minutes. The best checkpoint (update 8,000, by the whole validation split) has on test_2016 BLEU
    37.04 (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0), lower-case 37.46, chrF
    60.64, perplexity 5.66 per token. See experiments/multi30k.
    """
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 6000, "joint": True}
    config.batching = {"kind": "buckets", "tokens_per_update": 2048, "num_buckets": 4}
    config.model.dropout, config.model.embedding_dropout = 0.2, 0.1
    config.optimizer = {"schedule": "cosine", "learning_rate": 2.5e-3, "warmup_updates": 800}
    config.training = {"num_updates": 8000, "evaluate_every": 1000, "checkpoint_every": 250, "keep_last": 10}
    return config


def tiny_minutes(config: ConfigDict) -> ConfigDict:
    """Train the same model for six minutes of a CPU core: a first look in 1.5 epochs.

    Its hyperparameters are from a search of twenty trials. Run at commit 15f5475 on one of two
    cores of an AMD EPYC (Zen 4): at least 6 minutes. Validation BLEU is 8.29, 8.56 and 8.62 with
    three seeds (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0). See
    experiments/tuned_recipe.
    """
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 6000, "joint": True}
    config.batching = {"kind": "buckets", "tokens_per_update": 1024, "num_buckets": 4}
    config.model.dropout, config.model.embedding_dropout = 0.085, 0.065
    config.optimizer = {"schedule": "cosine", "learning_rate": 2.1e-3, "warmup_updates": 310, "b2": 0.987}
    config.training = {
        "num_updates": 1000,
        "label_smoothing": 0.125,
        "evaluate_every": 500,
        "checkpoint_every": 250,
        "keep_last": 3,
    }
    return config


def keras_en2de(config: ConfigDict) -> ConfigDict:
    """Use the English-German example of Lsdefine/attention-is-all-you-need-keras (2017).

    It departs from the paper: 2 layers, width 256, feed-forward 512, 4 heads, dropout on the
    attention weights too, two vocabularies of words, no shared matrices, and no label smoothing.
    This variant differs from it: there, the output projection of the heads has a bias, embeddings
    are not multiplied by sqrt(d_model), the loss is averaged over sentences before batches, and
    batches are 64 sentences.

    Compared with the model of the paper, at one size, five minutes on two cores: 0.7 BLEU less with
    10.3 M parameters, not 4.2 M.
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
    """Use the demonstration of Kyubyong/transformer (2017) in the size of the base model.

    It departs from the paper: a ReLU after the projections of queries, keys and values, no
    projection of the heads' output, learned positions, a constant zero embedding for padding, a
    zero attention output for padding queries, two vocabularies of words, no shared matrices, a
    constant learning rate of 1e-4, and dropout on embeddings and attention weights, not on the
    sublayers. This variant departs from it: there, projections have biases, and a sentence is cut
    after 10 words.

    Compared with the model of the paper, at one size and rate, five minutes on two cores: 3.2 BLEU
    less with 10.4 M parameters, not 4.2 M.
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
