"""The embedded default: a small Transformer on a generated English-German-like corpus.

    make quickstart
    transformer-jax train --config=configs/quickstart.py --workdir=runs/quickstart

Not yet run.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """Settings for two CPU cores."""
    config = ConfigDict()
    config.data = {"source": "grammar", "generated_pairs": 20_000, "max_source_tokens": 63, "max_target_tokens": 63}
    config.tokenizer = {"kind": "word", "vocabulary_size": 1000}
    config.batching = {"tokens_per_update": 4096, "row_multiple": 8}
    config.model = {
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 128,
        "d_ff": 256,
        "num_heads": 4,
    }
    config.optimizer = {"warmup_updates": 400}
    config.training = {"num_updates": 2000, "evaluate_every": 500, "checkpoint_every": 500}
    return config
