"""The embedded default: a small Transformer on a generated English-German-like corpus.

    make quickstart
    transformer-jax train --config=configs/quickstart.py --workdir=runs/quickstart

On two shared CPU cores: 261 CPU seconds with the installation, test BLEU 98.35. See
experiments/benchmarks.
"""

from ml_collections import ConfigDict

MEASURED = {"": ("2 shared CPU cores", "261 CPU s", "test BLEU 98.4")}


def get_config() -> ConfigDict:
    """Return settings for two CPU cores."""
    config = ConfigDict()
    config.data = {"source": "grammar", "generated_pairs": 20_000, "max_source_tokens": 31, "max_target_tokens": 31}
    config.tokenizer = {"kind": "word", "vocabulary_size": 2000}
    config.batching = {"tokens_per_update": 2048, "num_buckets": 2}
    config.model = {
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 128,
        "d_ff": 256,
        "num_heads": 4,
        "compute_dtype": "auto",
    }
    config.optimizer = {"schedule": "cosine", "learning_rate": 3e-3, "warmup_updates": 200}
    config.training = {"num_updates": 1100, "evaluate_every": 220, "checkpoint_every": 220, "keep_last": 5}
    config.training.validation_sentences = 256
    config.decoding = {"max_extra_tokens": 10}
    return config
