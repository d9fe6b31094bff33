"""Constituency parsing, English (section 6.3, table 4).

transformer-jax train --config=parsing:quick --workdir=runs/parsing
transformer-jax evaluate --workdir=runs/parsing --split=test
transformer-jax train --config=parsing:wsj --config.data.directory=treebank_3/parsed/mrg/wsj --workdir=runs/wsj
"""

from ml_collections import ConfigDict

VARIANTS = ("quick", "wsj", "wsj_semi", "wsj_sample")
MEASURED: dict = {}


def get_config(variant: str = "quick") -> ConfigDict:
    """The settings of a variant."""
    config = ConfigDict({"task": "parsing"})
    {"quick": quick, "wsj": wsj, "wsj_semi": wsj_semi, "wsj_sample": wsj_sample}[variant](config)
    return config


def quick(config: ConfigDict) -> None:
    """Trees of the embedded grammar, in minutes."""
    config.data = {
        "source": "generated_treebank",
        "generated_pairs": 4000,
        "max_source_tokens": 63,
        "max_target_tokens": 191,
    }
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
    config.training = {"num_updates": 800, "evaluate_every": 400, "checkpoint_every": 400, "keep_last": 2}
    config.training.validation_sentences = 100
    config.training.validation_beam_width = 1
    config.decoding = {"beam_width": 4, "length_penalty": 0.3, "max_extra_tokens": 150}


def wsj(config: ConfigDict) -> None:
    pass


def wsj_semi(config: ConfigDict) -> None:
    pass


def wsj_sample(config: ConfigDict) -> None:
    """The 5 % sample."""
    config.data = {
        "source": "treebank",
        "validation_split": "valid",
        "linearization": "in_order",
        "part_of_speech": True,
        "max_source_tokens": 63,
        "max_target_tokens": 191,
    }
    config.tokenizer = {"kind": "word_class", "vocabulary_size": 8000, "joint": False}
    config.batching = {"tokens_per_update": 2048, "num_buckets": 4}
    config.model = {
        "num_encoder_layers": 3,
        "num_decoder_layers": 2,
        "d_model": 128,
        "d_ff": 384,
        "num_heads": 4,
        "tying": "output",
        "dropout": 0.2,
        "embedding_dropout": 0.2,
        "compute_dtype": "auto",
    }
    config.optimizer = {"schedule": "cosine", "learning_rate": 2e-3, "warmup_updates": 500}
    config.training = {"num_updates": 5000, "evaluate_every": 1000, "checkpoint_every": 500, "keep_last": 5}
    config.training.validation_sentences = 100
    config.training.validation_beam_width = 1
    config.decoding = {"beam_width": 8, "length_penalty": 0.3, "max_extra_tokens": 150}
