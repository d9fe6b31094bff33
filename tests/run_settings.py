"""Settings of runs that take seconds."""

from pathlib import Path

from transformer_jax.config import ExperimentConfig, from_dict

UPDATES = 12


def tiny_settings(cache: Path, **training: object) -> dict:
    """A copy task for a model of a few thousand parameters, as nested dictionaries."""
    data = {"source": "copy", "generated_pairs": 200, "max_source_tokens": 47, "max_target_tokens": 47}
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}
    intervals = {"num_updates": UPDATES, "evaluate_every": 6, "checkpoint_every": 3, "log_every": 1}
    return {
        "data": data | {"cache_directory": str(cache)},
        "tokenizer": {"kind": "word", "vocabulary_size": 64},
        "batching": {"tokens_per_update": 512, "num_buckets": 1},
        "model": sizes | {"dropout": 0.1},
        "optimizer": {"schedule": "constant", "learning_rate": 1e-2, "warmup_updates": 4},
        "training": intervals | {"validation_sentences": 8} | training,
        "decoding": {"beam_width": 2, "max_extra_tokens": 4},
        "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
    }


def tiny_config(cache: Path, **training: object) -> ExperimentConfig:
    """The same, checked."""
    return from_dict(tiny_settings(cache, **training))
