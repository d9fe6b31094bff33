"""Multi30k, English to German: image captions, 29,000 pairs, about twelve words each (Elliott et al. 2016).

    transformer-jax train --config=configs/multi30k.py:tiny --config.data.directory=multi30k --workdir=runs/m30k
    transformer-jax evaluate --workdir=runs/m30k --split=test

The folder holds train, val and test_2016 as .en and .de files, plain or gzipped; get them from
https://github.com/multi30k/dataset (data/task1/raw).
"""

from ml_collections import ConfigDict


def get_config(variant: str = "tiny") -> ConfigDict:
    """The settings of a variant: ``tiny``."""
    config = ConfigDict()
    config.data = {
        "source": "text",
        "directory": "multi30k",
        "source_language": "en",
        "target_language": "de",
        "train_split": "train",
        "validation_split": "val",
        "test_split": "test_2016",
        "max_source_tokens": 99,
        "max_target_tokens": 99,
    }
    return {"tiny": tiny}[variant](config)


def tiny(config: ConfigDict) -> ConfigDict:
    """Transformer-Tiny (Wu et al. 2021): on 29,000 sentences a base-size model overfits."""
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 8000, "joint": True}
    config.batching = {"kind": "buckets", "tokens_per_update": 4096, "num_buckets": 4}
    config.model = {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "d_model": 128,
        "d_ff": 256,
        "num_heads": 4,
        "dropout": 0.3,
        "embedding_dropout": 0.3,
        "compute_dtype": "bfloat16",
    }
    config.optimizer = {
        "schedule": "cosine",
        "learning_rate": 4e-3,
        "warmup_updates": 1000,
    }
    config.training = {"num_updates": 6000, "evaluate_every": 500, "checkpoint_every": 250, "keep_last": 10}
    config.decoding = {"beam_width": 5, "length_penalty": 0.6}
    return config
