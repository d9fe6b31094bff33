r"""English constituency parsing (section 6.3, table 4): trees as symbols (Vinyals et al. 2015).

    transformer-jax train --config=parsing:quick --workdir=runs/parsing
    transformer-jax evaluate --workdir=runs/parsing --split=test
    transformer-jax parse --workdir=runs/parsing < sentences.txt
    transformer-jax train --config=parsing:wsj --config.data.directory=treebank_3/parsed/mrg/wsj \
        --workdir=runs/wsj
    transformer-jax train --config=parsing:wsj_sample --config.data.directory=treebank \
        --workdir=runs/wsj_sample

``quick``: test F1 97.98 with beam 4, on two cores that some twenty other programs shared.
``wsj_sample``: test F1 70.0 in 9 CPU minutes, ``wsj_sample_rnn``: 80.9 in 10, means of three seeds,
by the last checkpoint. ``wsj`` and ``wsj_semi`` are not yet run, on any hardware. See
docs/parsing.md and experiments/paper_table4.
"""

from ml_collections import ConfigDict

VARIANTS = ("quick", "wsj", "wsj_semi", "wsj_sample", "wsj_sample_rnn")
MEASURED = {
    "quick": ("2 shared CPU cores", "22 min, about 3 CPU min", "test F1 98.0"),
    "wsj_sample": ("2 shared CPU cores", "9 CPU min", "test F1 70.0"),
    "wsj_sample_rnn": ("2 shared CPU cores", "10 CPU min", "test F1 80.9"),
}


def get_config(variant: str = "quick") -> ConfigDict:
    """Return the settings of a variant."""
    config = ConfigDict({"task": "parsing"})
    sizes = {"wsj": wsj, "wsj_semi": wsj_semi, "wsj_sample": wsj_sample, "wsj_sample_rnn": wsj_sample_rnn}
    sizes.get(variant, quick)(config)
    return config


def quick(config: ConfigDict) -> None:
    """Train on 4,000 trees of the embedded grammar, of about 11 words."""
    config.data = {"source": "generated_treebank", "generated_pairs": 4000}
    config.data.update(max_source_tokens=63, max_target_tokens=191)
    config.tokenizer = {"kind": "word_class", "vocabulary_size": 1000, "joint": False}
    config.batching = {"tokens_per_update": 2048, "num_buckets": 3}
    config.model = {
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 96,
        "d_ff": 192,
        "num_heads": 4,
        "tying": "output",
        "compute_dtype": "auto",
    }
    config.optimizer = {"schedule": "cosine", "learning_rate": 3e-3, "warmup_updates": 200}
    config.training = {"num_updates": 2000, "evaluate_every": 1000, "checkpoint_every": 500, "keep_last": 2}
    config.training.update(validation_sentences=100, validation_beam_width=1)
    config.decoding = {"beam_width": 4, "length_penalty": 0.3, "max_extra_tokens": 150}


def wsj(config: ConfigDict) -> None:
    """Use the paper's "WSJ only": 4 layers of width 1024, about 40,000 sentences.

    The vocabulary has 16,000 pieces. The paper reports F1 91.3 on section 23.

    ``data.directory`` has the folders 00 to 24 of the Penn Treebank's Wall Street Journal. Beam 21,
    length penalty 0.3, outputs of at most input + 300 tokens, as in the paper. All other parameters
    are the base model's. The paper does not name the number of updates, nor dropout and learning
    rate, which it selected on section 22: here dropout is 0.2 and the warm-up 16,000 updates, as in
    tensor2tensor's ``transformer_parsing_base``. Symbols of trees have another vocabulary.
    """
    config.data = {"source": "treebank", "directory": "wsj"}
    config.data.update(train_split="02-21", validation_split="22", test_split="23")
    config.data.update(max_source_tokens=319, max_target_tokens=511, max_length_ratio=20.0)
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 16_000, "joint": False}
    config.batching = {"tokens_per_update": 25_000, "num_buckets": 6}
    config.model = {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "d_model": 1024,
        "d_ff": 2048,
        "num_heads": 8,
        "normalization": "post",
        "tying": "output",
        "dropout": 0.2,
        "embedding_dropout": 0.2,
        "attention_dropout": 0.2,
        "compute_dtype": "bfloat16",
    }
    config.optimizer = {"schedule": "noam", "learning_rate": 1.0, "warmup_updates": 16_000, "b2": 0.98, "epsilon": 1e-9}
    config.training = {"num_updates": 50_000, "evaluate_every": 2000, "checkpoint_every": 1000, "keep_last": 5}
    config.training.validation_beam_width = 1
    config.decoding = {"beam_width": 21, "length_penalty": 0.3, "max_extra_tokens": 300, "constrained": False}


def wsj_semi(config: ConfigDict) -> None:
    """Use the paper's semi-supervised setting: 17 million sentences, 32,000 pieces.

    The paper reports F1 92.7 on section 23.

    ``data.directory`` has a folder ``train`` with the trees of other parsers (the high-confidence
    and BerkeleyParser corpora of Vinyals et al. 2015) and of sections 02 to 21, and the folders 22
    and 23.
    """
    wsj(config)
    config.data.train_split = "train"
    config.tokenizer.vocabulary_size = 32_000
    config.model.update(dropout=0.1, embedding_dropout=0.1, attention_dropout=0.0)
    config.training.num_updates = 300_000


def wsj_sample(config: ConfigDict) -> None:
    """Train on the 5 % sample that NLTK distributes.

    train.mrg, valid.mrg and test.mrg have 3,396, 273 and 245 trees.

    Constituents are opened after their first child, words are their positions and parts of speech
    in the output. With dropout on embeddings, or without the positions, the attention does not
    learn the words in as many updates.
    """
    config.data = {"source": "treebank", "directory": "treebank", "validation_split": "valid"}
    config.data.update(linearization="in_order", part_of_speech=True, word_positions=True)
    config.data.update(max_source_tokens=63, max_target_tokens=255)
    config.tokenizer = {"kind": "word_class", "vocabulary_size": 8000, "joint": False}
    config.batching = {"tokens_per_update": 2048, "num_buckets": 4}
    config.model = {
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 128,
        "d_ff": 384,
        "num_heads": 4,
        "tying": "output",
        "dropout": 0.2,
        "embedding_dropout": 0.0,
        "compute_dtype": "auto",
    }
    config.optimizer = {"schedule": "cosine", "learning_rate": 1.5e-3, "warmup_updates": 500}
    config.training = {"num_updates": 6000, "evaluate_every": 1000, "checkpoint_every": 500, "keep_last": 5}
    config.training.update(validation_sentences=100, validation_beam_width=1)
    config.decoding = {"beam_width": 8, "length_penalty": 0.3, "max_extra_tokens": 200}


def wsj_sample_rnn(config: ConfigDict) -> None:
    """Use a GRU that attends by content and location (Chorowski et al. 2015), without positions."""
    wsj_sample(config)
    config.data.update(word_positions=False, max_target_tokens=191)
    config.decoding.max_extra_tokens = 150
    config.model = {
        "kind": "rnn",
        "cell": "gru",
        "attention": "location_sensitive",
        "wiring": "bahdanau",
        "d_embedding": 128,
        "d_hidden": 128,
        "d_attention": 128,
        "tying": "none",
        "dropout": 0.3,
        "embedding_dropout": 0.3,
        "compute_dtype": "auto",
    }
    config.optimizer = {"schedule": "cosine", "learning_rate": 3e-3, "warmup_updates": 100, "clip_norm": 1.0}
    config.training.update(num_updates=3000, evaluate_every=500, checkpoint_every=250)
